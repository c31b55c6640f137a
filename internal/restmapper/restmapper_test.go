package restmapper

import (
	"net/http"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func mapperOf(t *testing.T, cp *mctest.ControlPlane, shared *Groups) *Mapper {
	t.Helper()
	return mapperFor(t, cp.Config(), shared)
}

func mapperFor(t *testing.T, cfg *rest.Config, shared *Groups) *Mapper {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(t.Context(), cfg, httpClient, shared)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// testGroup is that of the kinds which tests install.
const testGroup = "test.dev"

// jsonAlone asks for JSON whatever was to be asked for, as if the server had nothing else.
type jsonAlone struct{ http.RoundTripper }

func (j jsonAlone) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept", "application/json")
	return j.RoundTripper.RoundTrip(req)
}

// TestTheMapperAnswersAsControllerRuntimesDoes compares all that both can be asked.
func TestTheMapperAnswersAsControllerRuntimesDoes(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	httpClient, err := rest.HTTPClientFor(f.Local.Config())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := apiutil.NewDynamicRESTMapper(f.Local.Config(), httpClient)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("as it is", func(t *testing.T) { mustAnswerAlike(t, mapperOf(t, f.Local, &Groups{}), theirs) })
	t.Run("a server that has JSON alone", func(t *testing.T) {
		cfg := f.Local.Config()
		cfg.Wrap(func(inner http.RoundTripper) http.RoundTripper { return jsonAlone{inner} })
		mustAnswerAlike(t, mapperFor(t, cfg, &Groups{}), theirs)
	})
}

func mustAnswerAlike(t *testing.T, ours, theirs meta.RESTMapper) {
	t.Helper()
	kinds := []struct {
		kind     schema.GroupKind
		versions []string
	}{
		{kind: schema.GroupKind{Kind: "Pod"}},
		{kind: schema.GroupKind{Kind: "Pod"}, versions: []string{"v1"}},
		{kind: schema.GroupKind{Kind: "Node"}},
		{kind: schema.GroupKind{Kind: "Pod"}, versions: []string{"v2"}},
		{kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, versions: []string{"v1"}},
		{kind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}},
		{kind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, versions: []string{"v1"}},
		{kind: schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}},
		{kind: schema.GroupKind{Kind: "Event"}},
		{kind: schema.GroupKind{Group: "nobody.dev", Kind: "Nothing"}},
		{kind: schema.GroupKind{Kind: "Nothing"}},
	}
	for _, k := range kinds {
		want, wantErr := theirs.RESTMapping(k.kind, k.versions...)
		got, err := ours.RESTMapping(k.kind, k.versions...)
		if meta.IsNoMatchError(err) != meta.IsNoMatchError(wantErr) || (err == nil) != (wantErr == nil) {
			t.Errorf("RESTMapping(%v, %v) = %v, want %v", k.kind, k.versions, err, wantErr)
		}
		if err == nil && (got.Resource != want.Resource || got.GroupVersionKind != want.GroupVersionKind || got.Scope.Name() != want.Scope.Name()) {
			t.Errorf("RESTMapping(%v, %v) = %+v, want %+v", k.kind, k.versions, got, want)
		}
	}
	for _, resource := range []schema.GroupVersionResource{
		{Resource: "pods"}, {Resource: "pod", Version: "v1"}, {Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "nothing"},
	} {
		want, wantErr := theirs.KindFor(resource)
		got, err := ours.KindFor(resource)
		if diff := cmp.Diff(want, got); diff != "" || meta.IsNoMatchError(err) != meta.IsNoMatchError(wantErr) {
			t.Errorf("KindFor(%v): %v, want %v (-want, +got):\n%s", resource, err, wantErr, diff)
		}
		wantResources, _ := theirs.ResourcesFor(resource)
		gotResources, _ := ours.ResourcesFor(resource)
		if diff := cmp.Diff(wantResources, gotResources); diff != "" {
			t.Errorf("ResourcesFor(%v) (-want, +got):\n%s", resource, diff)
		}
	}
	if singular, err := ours.ResourceSingularizer("deployments"); err != nil || singular != "deployment" {
		t.Errorf("ResourceSingularizer(deployments) = %q, %v", singular, err)
	}
}

func TestDocumentsThatAreNoneAreErrors(t *testing.T) {
	encode := func(obj runtime.Object) string {
		var document strings.Builder
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &document); err != nil {
			t.Fatal(err)
		}
		return document.String()
	}
	list := func(apiVersion, kind string) *metav1.APIResourceList {
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, APIResources: []metav1.APIResource{{Name: "things"}}}
	}
	for name, tc := range map[string]struct {
		document string
		ok       bool
	}{
		"protobuf":                    {encode(list("v1", "APIResourceList")), true},
		"JSON":                        {`{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"things"}]}`, true},
		"JSON without its kind":       {`{"resources":[{"name":"things"}]}`, true},
		"JSON of the group's version": {`{"kind":"APIResourceList","apiVersion":"test.dev/v1","resources":[{"name":"things"}]}`, true},
		"nothing":                     {"", false},
		"text that is YAML":           {"error: no such upstream", false},
		"a page":                      {"<html></html>", false},
		"protobuf of another kind":    {encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}), false},
		"protobuf that is cut off":    {encode(list("v1", "APIResourceList"))[:8], false},
	} {
		t.Run(name, func(t *testing.T) {
			var into metav1.APIResourceList
			err := parse([]byte(tc.document), &into)
			if (err == nil) != tc.ok {
				t.Errorf("the error is %v, want one: %t", err, !tc.ok)
			}
			if tc.ok && (len(into.APIResources) != 1 || into.APIResources[0].Name != "things") {
				t.Errorf("read %+v", into.APIResources)
			}
		})
	}
}

func crd(kind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + testGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: testGroup, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

func install(t *testing.T, cp *mctest.ControlPlane, crds ...*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if _, err := envtest.InstallCRDs(cp.Config(), envtest.CRDInstallOptions{CRDs: crds, MaxTime: 2 * time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// TestMembersShareWhatIsEqualAndNothingElse: two clusters that serve the same kind with another scope are told apart.
func TestMembersShareWhatIsEqualAndNothingElse(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	install(t, f.Members[0], crd("Thing", "things", apiextensionsv1.NamespaceScoped))
	install(t, f.Members[1], crd("Thing", "things", apiextensionsv1.ClusterScoped))
	shared := &Groups{}
	a, b := mapperOf(t, f.Members[0], shared), mapperOf(t, f.Members[1], shared)
	scopes := map[meta.RESTScopeName]bool{}
	for _, m := range []*Mapper{a, b} {
		for _, gk := range []schema.GroupKind{{Kind: "Pod"}, {Group: "apps", Kind: "Deployment"}} {
			if _, err := m.RESTMapping(gk); err != nil {
				t.Fatal(err)
			}
		}
		thing, err := m.RESTMapping(schema.GroupKind{Group: testGroup, Kind: "Thing"})
		if err != nil {
			t.Fatal(err)
		}
		scopes[thing.Scope.Name()] = true
	}
	for _, group := range []string{"", "apps"} {
		if a.groups[group] != b.groups[group] {
			t.Errorf("group %q is there twice", group)
		}
	}
	if a.groups[testGroup] == b.groups[testGroup] || len(scopes) != 2 {
		t.Error("a group that differs is shared")
	}
}

func TestAGroupThatNobodyUsesIsForgotten(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	shared := &Groups{}
	m := mapperOf(t, f.Local, shared)
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		return len(shared.groups)
	}
	goruntime.GC()
	if count() != 1 {
		t.Fatalf("%d groups while one is used", count())
	}
	m.Reset()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for count() > 0 { // the test's own time limit ends it
		goruntime.GC()
		<-tick.C
	}
}

func TestAKindThatIsInstalledLaterIsFound(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	m := mapperOf(t, f.Local, &Groups{})
	first, second := schema.GroupKind{Group: testGroup, Kind: "Thing"}, schema.GroupKind{Group: testGroup, Kind: "Other"}
	if _, err := m.RESTMapping(first); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not served: %v, want a NoMatch error", err)
	}
	install(t, f.Local, crd("Thing", "things", apiextensionsv1.NamespaceScoped))
	if _, err := m.RESTMapping(first, "v1"); err != nil {
		t.Errorf("a group that was installed: %v", err)
	}
	install(t, f.Local, crd("Other", "others", apiextensionsv1.NamespaceScoped))
	if _, err := m.RESTMapping(second, "v1"); err != nil {
		t.Errorf("a kind that was added to a known group: %v", err)
	}
}
