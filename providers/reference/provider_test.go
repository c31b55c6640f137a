package reference_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

func TestAMemberFollowsItsObjectAndItsSecret(t *testing.T) {
	h, others := startHub(t, 1)
	member := others[0]
	f := follow(t, h, reference.Provider{Format: placesBySecret()})

	place := h.create(t, places, "east", fields{"spec.secretRef.name": "first", "metadata.labels": map[string]any{"tier": "test"}})
	s := f.WaitFor(t, "east", fleet.Pending, reference.ReasonNoSecret)
	if s.Labels["tier"] != "test" {
		t.Errorf("the labels are %v, which are not those of the object", s.Labels)
	}
	secret := h.secret(t, "first", map[string][]byte{"other": []byte("x")})
	f.WaitFor(t, "east", fleet.Pending, reference.ReasonNoKey)
	h.change(t, secret, func() { secret.Data["kubeconfig"] = hubtest.Kubeconfig(t, member.AddUser(t, "first")) })
	f.WaitFor(t, "east", fleet.Ready, "")
	f.WaitUntilKnownAs(t, "east", "first")
	engagement, err := f.Engagement("east")
	hubtest.Must(t, err)

	h.change(t, secret, func() { secret.Data["kubeconfig"] = hubtest.Kubeconfig(t, member.AddUser(t, "second")) })
	f.WaitUntilKnownAs(t, "east", "second")
	h.secret(t, "other", map[string][]byte{"kubeconfig": hubtest.Kubeconfig(t, member.AddUser(t, "third"))})
	h.change(t, place, func() {
		hubtest.Must(t, unstructured.SetNestedField(place.Object, "other", "spec", "secretRef", "name"))
	})
	f.WaitUntilKnownAs(t, "east", "third")
	hubtest.Must(t, h.Client().Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "other"}}))
	f.WaitFor(t, "east", fleet.Ready, reference.ReasonNoSecret)
	h.secret(t, "other", map[string][]byte{"kubeconfig": hubtest.Kubeconfig(t, member.AddUser(t, "fourth"))})
	f.WaitUntilKnownAs(t, "east", "fourth")
	if again, err := f.Engagement("east"); again != engagement {
		t.Errorf("the member was engaged anew: %v", err)
	}

	h.change(t, place, func() { unstructured.RemoveNestedField(place.Object, "spec") })
	f.WaitUntilGone(t, "east")
	h.change(t, place, func() {
		hubtest.Must(t, unstructured.SetNestedField(place.Object, "other", "spec", "secretRef", "name"))
		place.SetFinalizers([]string{"test.fleet-runtime.dev/hold"})
	})
	f.WaitFor(t, "east", fleet.Ready, "")
	hubtest.Must(t, h.Client().Delete(t.Context(), place))
	f.WaitUntilGone(t, "east")
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKeyFromObject(place), place)) // it is being deleted
}

func TestAllObjectsThatNameASecretAreOneMember(t *testing.T) {
	h, others := startHub(t, 1)
	f := follow(t, h, reference.Provider{Format: reference.Flux(), Namespaces: []string{metav1.NamespaceAll}})
	name := fleet.ClusterName(h.namespace + "/prod")
	remote := fields{"spec.kubeConfig.secretRef.name": "prod"}
	first := h.create(t, kustomizations, "apps", remote)
	f.WaitFor(t, name, fleet.Pending, reference.ReasonNoSecret)
	second := h.create(t, kustomizations, "infra", remote)
	release := h.create(t, helmReleases, "apps", remote)
	h.create(t, kustomizations, "local", nil)
	h.create(t, kustomizations, "cloud", fields{"spec.kubeConfig.configMapRef.name": "prod"})
	secret := h.secret(t, "prod", map[string][]byte{"value": others[0].Kubeconfig(), "stage.yaml": others[0].Kubeconfig()})
	h.change(t, secret, func() { secret.Labels = map[string]string{"tier": "prod"} })
	f.WaitFor(t, name, fleet.Ready, "")
	f.WaitUntil(t, name, "labelled as the Secret is", func(s fleet.Status, _ bool) bool { return s.Labels["tier"] == "prod" })
	engagement, err := f.Engagement(name)
	hubtest.Must(t, err)

	// A second cluster in the Secret, which is the first by another key.
	stage := h.create(t, helmReleases, "stage", fields{"spec.kubeConfig.secretRef": map[string]any{"name": "prod", "key": "stage.yaml"}})
	f.WaitFor(t, name+"/stage.yaml", fleet.Ready, "")
	if all := f.List(labels.Everything()); len(all) != 2 {
		t.Errorf("there are other members than the two: %+v", all)
	}
	hubtest.Must(t, h.Client().Delete(t.Context(), stage))
	f.WaitUntilGone(t, name+"/stage.yaml")

	for _, gone := range []*unstructured.Unstructured{first, second} {
		hubtest.Must(t, h.Client().Delete(t.Context(), gone))
	}
	h.change(t, secret, func() { secret.Labels["seen"] = "true" })
	f.WaitUntil(t, name, "labelled anew", func(s fleet.Status, _ bool) bool { return s.Labels["seen"] == "true" })
	if again, err := f.Engagement(name); again != engagement {
		t.Errorf("the member was engaged anew when one of its objects went: %v", err)
	}
	hubtest.Must(t, h.Client().Delete(t.Context(), release))
	f.WaitUntilGone(t, name)

	var told eventsv1.EventList
	cl, err := client.New(h.Config(), client.Options{})
	hubtest.Must(t, err)
	hubtest.Must(t, cl.List(t.Context(), &told, client.InNamespace(h.namespace)))
	for _, e := range told.Items {
		t.Errorf("there is an event on %s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Note)
	}
}

func TestAReferenceLeadsIntoNoOtherNamespace(t *testing.T) {
	h, others := startHub(t, 1)
	elsewhere := hub{h.ControlPlane, h.CreateNamespace(t)}
	elsewhere.secret(t, "east", map[string][]byte{"kubeconfig": others[0].Kubeconfig()})
	place := h.create(t, places, "east", fields{"spec.secretRef": map[string]any{"name": "east", "namespace": elsewhere.namespace}})
	h.create(t, places, "strange", fields{"spec.secretRef": map[string]any{"name": "east", "namespace": "\x1b[31m/.."}})

	all := follow(t, h, reference.Provider{Format: placesBySecret(), Namespaces: []string{metav1.NamespaceAll}})
	s := all.WaitFor(t, fleet.ClusterName(h.namespace+"/east"), fleet.Pending, reference.ReasonRefusedReference)
	if !strings.Contains(s.Message, elsewhere.namespace) {
		t.Errorf("the message %q does not say into which namespace it led", s.Message)
	}
	all.WaitFor(t, fleet.ClusterName(h.namespace+"/strange"), fleet.Pending, reference.ReasonInvalidReference)
	hubtest.WaitForEvent(t, h.ControlPlane, place, reference.ReasonRefusedReference)

	format := placesBySecret()
	format.SecretNamespaces = []string{elsewhere.namespace}
	allowed := follow(t, h, reference.Provider{Format: format})
	allowed.WaitFor(t, fleet.ClusterName(h.namespace+"/east"), fleet.Ready, "")
}

func TestObjectsOfOthersLeadToTheirClusters(t *testing.T) {
	all, others := startHub(t, 1)
	member := others[0]
	good := member.Kubeconfig()
	for name, tc := range map[string]struct {
		format func(h hub) reference.Format
		kind   schema.GroupVersionKind
		object func(h hub) fields
		secret string
		data   map[string][]byte
		member fleet.ClusterName
	}{
		"Flux, with the default key": {
			func(hub) reference.Format { return reference.Flux() }, kustomizations,
			func(hub) fields { return fields{"spec.kubeConfig.secretRef.name": "prod"} },
			"prod",
			map[string][]byte{"value.yaml": good},
			"prod",
		},
		"Karmada": {
			func(h hub) reference.Format { return reference.Karmada(h.namespace) }, karmadas,
			func(h hub) fields {
				return fields{
					"spec.apiEndpoint": strings.TrimPrefix(member.Config().Host, "https://"), "spec.syncMode": "Push",
					"spec.secretRef": map[string]any{"namespace": h.namespace, "name": "karmada"},
				}
			},
			"karmada",
			map[string][]byte{"token": []byte(token(t, member) + "\n"), "caBundle": member.Config().CAData},
			"the-karmada",
		},
		"Kueue": {
			func(h hub) reference.Format { return reference.Kueue(h.namespace) }, multiKueues,
			func(hub) fields {
				return fields{"spec.clusterSource.kubeConfig": map[string]any{"location": "worker", "locationType": "Secret"}}
			},
			"worker",
			map[string][]byte{"kubeconfig": good},
			"the-kueue",
		},
		"Rancher": {
			func(hub) reference.Format { return reference.Rancher() }, ranchers,
			func(hub) fields { return fields{"status.clientSecretName": "the-rancher-kubeconfig"} },
			"the-rancher-kubeconfig",
			map[string][]byte{"value": good, "token": []byte("x")},
			"the-rancher",
		},
		"Sveltos": {
			func(hub) reference.Format { return reference.Sveltos() }, sveltoses,
			func(hub) fields { return nil },
			"the-sveltos-sveltos-kubeconfig",
			map[string][]byte{"re-kubeconfig": good},
			"the-sveltos",
		},
		"vcluster": {
			func(hub) reference.Format { return reference.VCluster() }, statefulSets, func(hub) fields {
				selected := map[string]any{"app": "vcluster", "release": "the-vcluster"}
				return fields{
					"metadata.labels": selected, "spec.selector.matchLabels": selected, "spec.template.metadata.labels": selected,
					"spec.template.spec.containers": []any{map[string]any{"name": "syncer", "image": "vcluster"}},
				}
			},
			"vc-the-vcluster",
			map[string][]byte{"config": good, "client-key": []byte("x")},
			"the-vcluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hub{all.ControlPlane, all.CreateNamespace(t)}
			p := reference.Provider{Format: tc.format(h)}
			f := follow(t, h, p)
			objectName := "the-" + strings.ToLower(strings.SplitN(name, ",", 2)[0])
			obj := object(tc.kind, h.namespace, objectName, tc.object(h))
			if p.Format.ClusterScoped {
				obj.SetNamespace("")
			}
			hubtest.Must(t, h.Client().Create(t.Context(), obj))
			f.WaitFor(t, tc.member, fleet.Pending, reference.ReasonNoSecret)
			h.secret(t, tc.secret, tc.data)
			f.WaitFor(t, tc.member, fleet.Ready, "")
			if diff := cmp.Diff(1, len(f.List(labels.Everything()))); diff != "" {
				t.Errorf("members (-want, +got):\n%s", diff)
			}
		})
	}
}

// token returns a token of a service account of the cluster.
func token(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cp.Config())
	hubtest.Must(t, err)
	accounts := clients.CoreV1().ServiceAccounts(cp.CreateNamespace(t))
	_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}, metav1.CreateOptions{})
	hubtest.Must(t, err)
	request, err := accounts.CreateToken(t.Context(), "fleet", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	hubtest.Must(t, err)
	return request.Status.Token
}

func TestWhatNeedsPermissionIsRefused(t *testing.T) {
	h, others := startHub(t, 1)
	member := others[0]
	h.secret(t, "program", map[string][]byte{"kubeconfig": hubtest.Kubeconfig(t, &rest.Config{
		Host: "https://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/false", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		},
	})})
	h.create(t, places, "program", fields{"spec.secretRef.name": "program"})
	places := follow(t, h, reference.Provider{Format: placesBySecret()})
	places.WaitFor(t, "program", fleet.Pending, kubeconfig.ReasonRefused)

	h.secret(t, "unchecked", map[string][]byte{"token": []byte(token(t, member)), "caBundle": member.Config().CAData})
	unchecked := object(karmadas, "", "unchecked", fields{
		"spec.apiEndpoint": member.Config().Host, "spec.insecureSkipTLSVerification": true,
		"spec.secretRef": map[string]any{"namespace": h.namespace, "name": "unchecked"},
	})
	hubtest.Must(t, h.Client().Create(t.Context(), unchecked))
	refused := follow(t, h, reference.Provider{Format: reference.Karmada(h.namespace)})
	refused.WaitFor(t, "unchecked", fleet.Pending, kubeconfig.ReasonRefused)
	allowed := follow(t, h, reference.Provider{Format: reference.Karmada(h.namespace), Allow: kubeconfig.Allow{InsecureTLS: true}})
	allowed.WaitFor(t, "unchecked", fleet.Ready, "")
}

func TestOnlySelectedObjectsAndSecretsCount(t *testing.T) {
	h, others := startHub(t, 1)
	selected := labels.SelectorFromSet(labels.Set{"tier": "prod"})
	f := follow(t, h, reference.Provider{Format: placesBySecret(), Selector: selected, SecretSelector: selected})
	h.create(t, places, "test", fields{"spec.secretRef.name": "east"})
	prod := h.create(t, places, "prod", fields{"spec.secretRef.name": "east", "metadata.labels": map[string]any{"tier": "prod"}})
	secret := h.secret(t, "east", map[string][]byte{"kubeconfig": others[0].Kubeconfig()})
	f.WaitFor(t, "prod", fleet.Pending, reference.ReasonNoSecret)
	h.change(t, secret, func() { secret.Labels = map[string]string{"tier": "prod"} })
	f.WaitFor(t, "prod", fleet.Ready, "")
	if all := f.List(labels.Everything()); len(all) != 1 {
		t.Errorf("there are members that were not selected: %+v", all)
	}
	h.change(t, prod, func() { prod.SetLabels(map[string]string{"tier": "test"}) })
	f.WaitUntilGone(t, "prod")
}

func TestAProviderThatCanNeverWorkSaysSo(t *testing.T) {
	several := placesBySecret()
	several.Kinds = append(several.Kinds, kustomizations.GroupKind())
	nowhere := placesBySecret()
	nowhere.ClusterScoped = true
	for name, tc := range map[string]struct {
		provider reference.Provider
		want     string
	}{
		"no format":                    {reference.Provider{Namespaces: []string{"a"}}, "set Provider.Format"},
		"several kinds":                {reference.Provider{Format: several, Namespaces: []string{"a"}}, "set Format.PerSecret"},
		"no namespaces":                {reference.Provider{Format: reference.Flux()}, "set Provider.Namespaces"},
		"namespaces where none are":    {reference.Provider{Format: reference.Kueue("a"), Namespaces: []string{"a"}}, "leave Provider.Namespaces empty"},
		"no namespace for any Secrets": {reference.Provider{Format: nowhere}, "set Format.SecretNamespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.provider.Run(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %s", err, tc.want)
			}
		})
	}
}
