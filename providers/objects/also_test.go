package objects_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// gadgets is a kind that no cluster serves until it is installed.
func gadgets() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.test.fleet-runtime.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.fleet-runtime.dev",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Gadget", ListKind: "GadgetList", Plural: "gadgets", Singular: "gadget"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}

func gadget() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("test.fleet-runtime.dev/v1")
	obj.SetKind("Gadget")
	return obj
}

// describeGadget returns a member whose host is in the Secret "NAME-host" beside the gadget.
func describeGadget(ctx context.Context, gadget *unstructured.Unstructured, also objects.Reader) ([]fleet.Member, error) {
	m := fleet.Member{Name: fleet.ClusterName(gadget.GetName())}
	secret := &corev1.Secret{}
	err := also.Get(ctx, client.ObjectKey{Namespace: gadget.GetNamespace(), Name: gadget.GetName() + "-host"}, secret)
	switch {
	case apierrors.IsNotFound(err):
		m.Err = errors.New("no host yet")
	case err != nil:
		return nil, err
	default:
		m.Config = &rest.Config{Host: string(secret.Data["host"])}
	}
	return []fleet.Member{m}, nil
}

func gadgetProvider(namespaces ...string) objects.Provider[*unstructured.Unstructured] {
	return objects.Provider[*unstructured.Unstructured]{
		Object:     gadget(),
		Namespaces: namespaces,
		Members:    describeGadget,
		Also: []objects.Also{{
			Object:   &corev1.Secret{},
			Selector: labelled(ours),
			Keys: func(secret client.Object) []client.ObjectKey {
				name := secret.GetAnnotations()["gadget"]
				return []client.ObjectKey{{Namespace: secret.GetNamespace(), Name: name}, {Namespace: "unwatched", Name: name}}
			},
		}},
	}
}

func TestMembersFollowObjectsOfASecondKind(t *testing.T) {
	cp := pool.Start(t, mctest.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgets()}}).Local
	ns, second := newNamespace(t, cp), newNamespace(t, cp)
	r := start(t, cp.Config(), gadgetProvider(ns.string, second.string))
	for _, n := range []namespace{ns, second} {
		obj := gadget()
		obj.SetNamespace(n.string)
		obj.SetName("g-" + n.string)
		if err := cp.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	one, two := fleet.ClusterName("g-"+ns.string), fleet.ClusterName("g-"+second.string)
	r.waitForHosts(t, hosts{one: "no host yet", two: "no host yet"})

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns.string, Name: string(one) + "-host",
		Labels: map[string]string{ours: "true"}, Annotations: map[string]string{"gadget": string(one)},
	}, StringData: map[string]string{"host": "1"}}
	if err := cp.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	r.waitForHosts(t, hosts{one: "1", two: "no host yet"})
	update(ns, secret, func(s *corev1.Secret) { s.Data["host"] = []byte("2") })
	r.waitForHosts(t, hosts{one: "2", two: "no host yet"})
	ns.delete(secret)
	r.waitForHosts(t, hosts{one: "no host yet", two: "no host yet"})
}

func TestAKindThatIsInstalledLaterIsWaitedFor(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	r := start(t, cp.Config(), gadgetProvider(ns.string))
	about := "Gadget objects in namespace " + ns.string
	r.waitForProblem(t, about, "NoKind: clusters are not discovered: the local cluster does not serve the kind: no matches for kind")

	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgets()}, MaxTime: patience}
	if _, err := envtest.InstallCRDs(cp.Config(), options); err != nil {
		t.Fatal(err)
	}
	newGadget(ns, "g")
	r.waitForHosts(t, hosts{"g": "no host yet"})
	r.waitForProblem(t, about)
}

func TestOnlyWhatIsWatchedCanBeRead(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	p := provider(ns.string)
	p.Members = func(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
		return nil, also.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.ConfigMap{})
	}
	start(t, cp.Config(), p)
	ns.waitForEvents(secret, "NotDescribed: ConfigMap "+ns.string+"/secret is not among what the provider watches")
}
