package objects_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// newGadget creates a gadget.
func newGadget(ns namespace, name string) {
	ns.t.Helper()
	obj := gadget()
	obj.SetNamespace(ns.string)
	obj.SetName(name)
	if err := ns.cl.Create(ns.t.Context(), obj); err != nil {
		ns.t.Fatal(err)
	}
}

// startGadgets starts a cluster that serves gadgets, and returns two namespaces of it.
func startGadgets(t *testing.T) (config *rest.Config, first, second namespace) {
	t.Helper()
	cp := pool.Start(t, mctest.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgets()}}).Local
	return cp.Config(), newNamespace(t, cp), newNamespace(t, cp)
}

func TestASecondKindMayBeInNamespacesOfItsOwn(t *testing.T) {
	config, mine, secrets := startGadgets(t)
	p := gadgetProvider(mine.string)
	p.Also[0].Namespaces = []string{secrets.string}
	p.Also[0].Keys = func(client.Object) []client.ObjectKey { return []client.ObjectKey{{Namespace: mine.string, Name: "g"}} }
	p.Members = func(ctx context.Context, _ *unstructured.Unstructured, also objects.Reader) ([]fleet.Member, error) {
		list := &corev1.SecretList{}
		if err := also.List(ctx, list, client.InNamespace(secrets.string), client.MatchingLabels{theirs: "true"}); err != nil {
			return nil, err
		}
		hosts := make([]string, len(list.Items))
		for i := range list.Items {
			hosts[i] = string(list.Items[i].Data["host"])
		}
		slices.Sort(hosts)
		return []fleet.Member{{Name: "g", Config: &rest.Config{Host: strings.Join(hosts, ",")}}}, nil
	}
	mine.secret("in-the-gadgets-namespace", map[string]string{"host": "x"}, ours, theirs)
	newGadget(mine, "g")
	r := start(t, config, p)
	r.waitForHosts(t, hosts{"g": ""})
	secrets.secret("one", map[string]string{"host": "1"}, ours, theirs)
	secrets.secret("other", map[string]string{"host": "x"}, ours)
	two := secrets.secret("two", map[string]string{"host": "2"}, ours, theirs)
	r.waitForHosts(t, hosts{"g": "1,2"})
	secrets.delete(two)
	r.waitForHosts(t, hosts{"g": "1"})
}

func TestOnlyWhatIsWatchedCanBeListed(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	p := provider(ns.string)
	p.Also = []objects.Also{{
		Object: &corev1.ConfigMap{}, Keys: func(client.Object) []client.ObjectKey { return nil },
	}}
	lists := map[string]client.ObjectList{"another-namespace": &corev1.ConfigMapList{}, "another-kind": &corev1.ServiceList{}}
	p.Members = func(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
		return nil, also.List(ctx, lists[secret.Name], client.InNamespace("elsewhere"))
	}
	namespace, kind := ns.secret("another-namespace", nil, ours), ns.secret("another-kind", nil, ours)
	start(t, cp.Config(), p)
	const tail = ` in namespace "elsewhere" are not among what the provider watches`
	ns.waitForEvents(namespace, "NotDescribed: objects of kind ConfigMap"+tail)
	ns.waitForEvents(kind, "NotDescribed: objects of kind Service"+tail)
}

func TestWhatIsTrimmedIsNotKept(t *testing.T) {
	config, ns, _ := startGadgets(t)
	p := gadgetProvider(ns.string)
	p.Also[0].Keys = func(obj client.Object) []client.ObjectKey {
		name, _ := strings.CutSuffix(obj.GetName(), "-host")
		return []client.ObjectKey{{Namespace: obj.GetNamespace(), Name: name}}
	}
	p.Also[0].Trim = func(obj client.Object) {
		if obj.GetName() == "secret-host" {
			obj.(*corev1.Secret).Data = nil
		}
	}
	ns.secret("secret-host", map[string]string{"host": "1"}, ours)
	ns.secret("open-host", map[string]string{"host": "1"}, ours)
	newGadget(ns, "secret")
	newGadget(ns, "open")
	start(t, config, p).waitForHosts(t, hosts{"secret": "", "open": "1"})
}

func TestWaitingIsNoReasonForAnEvent(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	p := provider(ns.string)
	p.Members = func(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
		m := fleet.Member{Name: fleet.ClusterName(secret.Name)}
		if m.Err = objects.Waiting("NotYet", "it is being made"); secret.Name == "bad" {
			m.Err = reasonedError{"it is bad"}
		}
		return []fleet.Member{m}, nil
	}
	waiting := ns.secret("waiting", nil, ours)
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"waiting": "it is being made"})
	bad := ns.secret("bad", nil, ours)
	ns.waitForEvents(bad, "Reasoned: it is bad")
	ns.waitForEvents(waiting)
	r.read(func() {
		with, ok := r.members["waiting"].Err.(interface{ Reason() string })
		if !ok || with.Reason() != "NotYet" {
			t.Errorf("the reason is missing: %v", with)
		}
	})
}

func TestASchemeOfItsOwnServesForKindsThatTheLocalClusterDoesNotKnow(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1", "b": "bad"}, ours)
	p := provider(ns.string)
	p.Scheme = runtime.NewScheme()
	if err := p.Run(t.Context(), startLocal(t, cp.Config()), newRecording()); err == nil || !strings.Contains(err.Error(), "*v1.Secret") {
		t.Errorf("with a scheme that does not know the kind, Run returned %v", err)
	}
	if err := corev1.AddToScheme(p.Scheme); err != nil {
		t.Fatal(err)
	}
	start(t, cp.Config(), p).waitForHosts(t, hosts{"a": "1", "b": "the value is bad"})
	ns.waitForEvents(secret, "Reasoned: the value is bad")
}
