package reference

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// read is the object that a JSON text is.
func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// of is an object "east" in the namespace "hub" with this spec.
func of(spec string) string {
	return `{"metadata": {"namespace": "hub", "name": "east"}, "spec": ` + spec + `}`
}

// reasonOf returns the reason that an error brings along.
func reasonOf(err error) string {
	var with interface{ Reason() string }
	if errors.As(err, &with) {
		return with.Reason()
	}
	return ""
}

func TestWhereObjectsLead(t *testing.T) {
	inHub := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: "hub", Name: name} }
	karmada := func(change func(c *Cluster)) *Cluster {
		c := &Cluster{Server: "10.0.0.1:6443", TokenKey: "token", CAKey: "caBundle"}
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		format Format
		object string
		want   Reference
		reason string
	}{
		"Flux, without a key": {
			Flux(), of(`{"kubeConfig": {"secretRef": {"name": "prod"}}}`),
			Reference{Secret: inHub("prod"), Keys: []string{"value", "value.yaml"}},
			"",
		},
		"Flux, with the default key": {
			Flux(), of(`{"kubeConfig": {"secretRef": {"name": "prod", "key": "value"}}}`),
			Reference{Secret: inHub("prod"), Keys: []string{"value", "value.yaml"}},
			"",
		},
		"Flux, with a key": {
			Flux(), of(`{"kubeConfig": {"secretRef": {"name": "prod", "key": "a.yaml"}}}`),
			Reference{Secret: inHub("prod"), Keys: []string{"a.yaml"}, Part: "a.yaml"},
			"",
		},
		"Flux, for its own cluster":  {Flux(), of(`{}`), Reference{}, ""},
		"Flux, with a ConfigMap":     {Flux(), of(`{"kubeConfig": {"configMapRef": {"name": "prod"}}}`), Reference{}, ""},
		"Flux, with a number":        {Flux(), of(`{"kubeConfig": {"secretRef": {"name": 1}}}`), Reference{}, ReasonInvalidReference},
		"Flux, with a list":          {Flux(), of(`{"kubeConfig": ["secretRef"]}`), Reference{}, ""},
		"Flux, with a path":          {Flux(), of(`{"kubeConfig": {"secretRef": {"name": "../prod"}}}`), Reference{}, ReasonInvalidReference},
		"Flux, with a path as a key": {Flux(), of(`{"kubeConfig": {"secretRef": {"name": "a", "key": "../a"}}}`), Reference{}, ReasonInvalidReference},

		"Karmada": {
			Karmada("hub"), of(`{"apiEndpoint": "10.0.0.1:6443", "secretRef": {"namespace": "hub", "name": "a"}}`),
			Reference{Secret: inHub("a"), Cluster: karmada(func(*Cluster) {})},
			"",
		},
		"Karmada, behind a proxy and unchecked": {
			Karmada("hub"), of(`{"apiEndpoint": "10.0.0.1:6443", "secretRef": {"namespace": "hub", "name": "a"},
				"proxyURL": "http://proxy", "insecureSkipTLSVerification": true}`),
			Reference{Secret: inHub("a"), Cluster: karmada(func(c *Cluster) { c.ProxyURL, c.InsecureSkipTLSVerify = "http://proxy", true })},
			"",
		},
		"Karmada, without a Secret": {Karmada("hub"), of(`{"apiEndpoint": "10.0.0.1:6443", "syncMode": "Pull"}`), Reference{}, ReasonNoSecret},
		"Karmada, with a header": {
			Karmada("hub"),
			of(`{"secretRef": {"namespace": "hub", "name": "a"}, "proxyHeader": {"a": "b"}}`),
			Reference{},
			ReasonInvalidReference,
		},
		"Karmada, into another namespace": {
			Karmada("elsewhere"),
			`{"metadata": {"name": "a"}, "spec": {"secretRef": {"namespace": "hub", "name": "a"}}}`,
			Reference{},
			ReasonRefusedReference,
		},
		"Karmada, with an endless address": {
			Karmada("hub"),
			of(`{"apiEndpoint": "` + strings.Repeat("a", 3000) + `", "secretRef": {"namespace": "hub", "name": "a"}}`),
			Reference{},
			ReasonInvalidReference,
		},
		"Karmada, unchecked by text": {
			Karmada("hub"),
			of(`{"insecureSkipTLSVerification": "true", "secretRef": {"namespace": "hub", "name": "a"}}`),
			Reference{},
			ReasonInvalidReference,
		},

		"Kueue v1beta2": {
			Kueue("hub"), of(`{"clusterSource": {"kubeConfig": {"location": "a", "locationType": "Secret"}}}`),
			Reference{Secret: inHub("a"), Keys: []string{"kubeconfig"}},
			"",
		},
		"Kueue v1beta1": {
			Kueue("hub"), of(`{"kubeConfig": {"location": "a", "locationType": "Secret"}}`),
			Reference{Secret: inHub("a"), Keys: []string{"kubeconfig"}},
			"",
		},
		"Kueue, with a file":           {Kueue("hub"), of(`{"kubeConfig": {"location": "/etc/a", "locationType": "Path"}}`), Reference{}, ReasonOtherAccess},
		"Kueue, with a ClusterProfile": {Kueue("hub"), of(`{"clusterSource": {"clusterProfileRef": {"name": "a"}}}`), Reference{}, ReasonOtherAccess},
		"Kueue, with nothing":          {Kueue("hub"), of(`{}`), Reference{}, ReasonNoSecret},

		"Rancher": {
			Rancher(), `{"metadata": {"namespace": "hub"}, "status": {"clientSecretName": "a"}}`,
			Reference{Secret: inHub("a"), Keys: []string{"value"}},
			"",
		},
		"Rancher, not ready": {Rancher(), of(`{}`), Reference{}, ReasonNoSecret},

		"Sveltos, by its name": {Sveltos(), of(`{}`), Reference{Secret: inHub("east-sveltos-kubeconfig")}, ""},
		"Sveltos, by names": {
			Sveltos(), of(`{"kubeconfigName": "a", "kubeconfigKeyName": "b"}`),
			Reference{Secret: inHub("a"), Keys: []string{"b"}},
			"",
		},
		"Sveltos, in pull mode":             {Sveltos(), of(`{"pullMode": true}`), Reference{}, ReasonOtherAccess},
		"Sveltos, with a workload identity": {Sveltos(), of(`{"workloadIdentity": {"provider": "AWS"}}`), Reference{}, ReasonOtherAccess},

		"vcluster": {VCluster(), of(`{}`), Reference{Secret: inHub("vc-east"), Keys: []string{"config"}}, ""},

		"fields": {
			Format{SecretNamespaces: []string{"other"}, Read: Fields{
				SecretName: "spec.a.name", SecretNamespace: "spec.a.namespace", Key: "spec.a.key", Keys: []string{"kubeconfig"},
			}.Read},
			of(`{"a": {"name": "b", "namespace": "other", "key": "c"}}`),
			Reference{Secret: client.ObjectKey{Namespace: "other", Name: "b"}, Keys: []string{"c"}},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Provider{Format: tc.format}.follow(read(t, tc.object))
			if reason := reasonOf(err); reason != tc.reason {
				t.Errorf("got reason %q of error %v, want %q", reason, err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheKeyOfASecretIsNeverGuessed(t *testing.T) {
	data := func(keys ...string) map[string][]byte {
		all := map[string][]byte{}
		for _, key := range keys {
			all[key] = nil
		}
		return all
	}
	for name, tc := range map[string]struct {
		asked []string
		data  map[string][]byte
		want  string // "" for none
	}{
		"the first":         {[]string{"a", "b"}, data("b", "a"), "a"},
		"the second":        {[]string{"a", "b"}, data("b", "c"), "b"},
		"neither":           {[]string{"a", "b"}, data("c"), ""},
		"the only one":      {nil, data("c"), "c"},
		"any of two":        {nil, data("c", "d"), ""},
		"an empty Secret's": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Reference{Keys: tc.asked}.key(&corev1.Secret{Data: tc.data})
			if got != tc.want || (err == nil) != (tc.want != "") || err != nil && reasonOf(err) != ReasonNoKey {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestSecretsThatHoldNoCredentialsAreEmptied(t *testing.T) {
	for secretType, kept := range map[corev1.SecretType]bool{
		corev1.SecretTypeOpaque: true, "cluster.x-k8s.io/secret": true, corev1.SecretTypeServiceAccountToken: true,
		"helm.sh/release.v1": false, corev1.SecretTypeTLS: false,
	} {
		secret := &corev1.Secret{Type: secretType, Data: map[string][]byte{"a": nil}}
		secret.Annotations = map[string]string{"applied": "all"}
		trim(secret)
		if (secret.Data != nil) != kept || secret.Annotations != nil {
			t.Errorf("of type %s, data %v and annotations %v are kept", secretType, secret.Data, secret.Annotations)
		}
	}
}

// secrets are what a fuzzed object may lead to: every Secret exists, with these keys.
type secrets map[string][]byte

// Get implements objects.Reader.
func (s secrets) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	secret.Namespace, secret.Name, secret.Data = key.Namespace, key.Name, s
	return nil
}

// List implements objects.Reader.
func (secrets) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func FuzzObjectsLeadNowhereElse(f *testing.F) {
	for _, seed := range []string{
		of(`{"kubeConfig": {"secretRef": {"name": "prod", "key": "a"}}}`), of(`{"kubeConfig": {"secretRef": {"name": ["a"]}}}`),
		of(`{"apiEndpoint": "https://10.0.0.1", "secretRef": {"namespace": "hub", "name": "a"}, "proxyURL": "file:///etc"}`),
		of(`{"apiEndpoint": "\u001b[31m:\u202e", "secretRef": {"namespace": "kube-system", "name": "a"}, "insecureSkipTLSVerification": 1}`),
		of(`{"clusterSource": {"kubeConfig": {"location": "a", "locationType": "\u001b]0;"}}}`), of(`{"clusterSource": 1}`),
		of(`{"kubeconfigName": "a", "kubeconfigKeyName": "..", "pullMode": null, "workloadIdentity": []}`),
		`{"metadata": {"name": 1, "namespace": {}, "labels": [], "deletionTimestamp": "x"}, "status": {"clientSecretName": {}}}`,
		`{"metadata": null, "spec": {"a": {"b": {"c": {"d": {"e": [[[[{}]]]]}}}}}}`, `{"spec": ` + strings.Repeat(`{"spec": `, 200) + `1` + strings.Repeat("}", 201),
	} {
		f.Add([]byte(seed), []byte("apiVersion: v1\nkind: Config"))
	}
	formats := map[string]Format{
		"flux": Flux(), "karmada": Karmada("hub"), "kueue": Kueue("hub"), "rancher": Rancher(), "sveltos": Sveltos(), "vcluster": VCluster(),
		"fields": {Read: Fields{SecretName: "spec.a.b", SecretNamespace: "spec.a.c", Key: "spec.spec.spec"}.Read},
	}
	f.Fuzz(func(t *testing.T, text, content []byte) {
		obj := &unstructured.Unstructured{}
		if json.Unmarshal(text, &obj.Object) != nil || obj.Object == nil {
			t.Skip("an API server hands out objects only")
		}
		exist := secrets{"value": content, "kubeconfig": content, "config": content, "token": content, "caBundle": content}
		for name, format := range formats {
			p := Provider{Format: format, Namespaces: []string{"hub"}}
			ref, err := p.follow(obj)
			where := ref.Secret.Namespace
			if ref.Secret.Name != "" && where != obj.GetNamespace() && where != "hub" {
				t.Errorf("%s: the object leads into namespace %q", name, where)
			}
			members, notDescribed := (&follower{provider: p, kind: "Kind", named: newIndex()}).members(t.Context(), obj, exist)
			for _, m := range members {
				err = errors.Join(err, m.Err)
			}
			if notDescribed != nil && !errors.Is(notDescribed, objects.ErrNone) {
				t.Errorf("%s: the object would be described again and again: %v", name, notDescribed)
			}
			if err := errors.Join(err, notDescribed); err != nil && strings.ReplaceAll(err.Error(), "\n", " ") != oneline.Text(err.Error(), 5000) {
				t.Errorf("%s: the error is not fit to be shown: %q", name, err)
			}
		}
	})
}
