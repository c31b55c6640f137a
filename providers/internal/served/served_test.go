package served_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/served"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

var kind = schema.GroupKind{Group: "test.fleet-runtime.dev", Kind: "Cluster"}

// definition is the CRD of the kind in these versions.
func definition(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusters." + kind.Group}}
	crd.Spec.Group, crd.Spec.Scope = kind.Group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: "ClusterList", Plural: "clusters", Singular: "cluster"}
	for i, version := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		})
	}
	return crd
}

// start starts a cluster that serves the kind in these versions, or not at all.
func start(t *testing.T, versions ...string) cluster.Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	options := mctest.Options{Scheme: scheme}
	if len(versions) > 0 {
		options.CRDs = []*apiextensionsv1.CustomResourceDefinition{definition(versions...)}
	}
	cl, err := cluster.New(pool.Start(t, options).Local.Config(), func(o *cluster.Options) { o.Scheme = scheme })
	must(t, err)
	return cl
}

// problems is a fleet that passes on the problems of its provider.
type problems struct {
	fleet.Members // for methods that are not called

	tell func(fleet.Problem) // nil for nobody who hears
}

// SetProblem implements fleet.Members.
func (p problems) SetProblem(problem fleet.Problem) {
	if p.tell != nil {
		p.tell(problem)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstVersionThatIsServedIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		served, asked []string
		want          string
	}{
		"the first":  {[]string{"v1alpha1", "v1alpha2"}, []string{"v1alpha2", "v1alpha1"}, "v1alpha2"},
		"the second": {[]string{"v1alpha1"}, []string{"v1alpha2", "v1alpha1"}, "v1alpha1"},
		"a known one does not go before the first": {[]string{"v1", "v1alpha1"}, []string{"v1alpha1", "v1"}, "v1alpha1"},
		"without a wish the server's":              {[]string{"v1alpha1", "v1", "v1beta1"}, nil, "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := start(t, tc.served...)
			_, err := cl.GetRESTMapper().RESTMapping(kind, tc.served[0]) // the mapper knows one version from others
			must(t, err)
			got, ok := served.Provider{Members: problems{}}.Wait(t.Context(), cl, kind, tc.asked...)
			if want := kind.WithVersion(tc.want); !ok || got != want {
				t.Errorf("got %v, %v, want %v", got, ok, want)
			}
		})
	}
}

func TestAKindThatComesLaterIsWaitedFor(t *testing.T) {
	for name, versions := range map[string][]string{"in a version": {"v2", "v1"}, "in any version": nil} {
		t.Run(name, func(t *testing.T) {
			cl := start(t)
			told := make(chan fleet.Problem, 100)
			p := served.Provider{Name: "test", Members: problems{tell: func(p fleet.Problem) { told <- p }}}
			found := make(chan schema.GroupVersionKind, 1)
			go func() {
				got, _ := p.Wait(t.Context(), cl, kind, versions...)
				found <- got
			}()
			if p := <-told; p.Provider != "test" || p.About != "Cluster objects" || p.Reason != fleet.ReasonNoKind {
				t.Errorf("the problem is %+v", p)
			}
			must(t, cl.GetClient().Create(t.Context(), definition("v1")))
			if got := <-found; got != kind.WithVersion("v1") {
				t.Errorf("got %v", got)
			}
			var last fleet.Problem
			for len(told) > 0 {
				last = <-told
			}
			if last.Reason != "" || last.About != "Cluster objects" {
				t.Errorf("the problem has not ended: %+v", last)
			}
		})
	}
}

func TestTheEndOfTheContextEndsTheWait(t *testing.T) {
	cl := start(t)
	ctx, stop := context.WithCancel(t.Context())
	p := served.Provider{Members: problems{tell: func(fleet.Problem) { stop() }}}
	if got, ok := p.Wait(ctx, cl, kind, "v1"); ok {
		t.Errorf("got %v although the kind is not served", got)
	}
}
