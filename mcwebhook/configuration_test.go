package mcwebhook

import (
	"path"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// written is a webhook that says as little as it may.
const written = `
kind: ValidatingWebhookConfiguration
apiVersion: admissionregistration.k8s.io/v1
webhooks:
- name: v.example.com
  clientConfig: {service: {name: a, namespace: b, path: /validate}}
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [GROUP], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]
`

// take returns what members get of a manifest.
func take(t *testing.T, manifest string, allow bool) (*admissionregistrationv1.ValidatingWebhook, error) {
	t.Helper()
	configurations, err := Parse([]byte(manifest))
	if err != nil {
		return nil, err
	}
	kinds, err := takeKinds(Options{Configurations: configurations, AllowFailForCoreGroups: allow})
	if err != nil {
		return nil, err
	}
	w := &admissionregistrationv1.ValidatingWebhook{}
	all := kinds[0].webhooks(map[string]bool{"/validate": true}, func(path string) string { return "https://hub.test" + path }, nil)
	return w, runtime.DefaultUnstructuredConverter.FromUnstructured(all[0].(map[string]any), w)
}

func TestDefaultsCannotBreakACluster(t *testing.T) {
	w, err := take(t, strings.ReplaceAll(written, "GROUP", "apps"), false)
	if err != nil {
		t.Fatal(err)
	}
	if *w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds != 5 || *w.ClientConfig.URL != "https://hub.test/validate" || w.ClientConfig.Service != nil {
		t.Errorf("it is %v", w)
	}
	if got := w.NamespaceSelector.MatchExpressions; len(got) != 1 || got[0].Operator != "NotIn" || got[0].Values[0] != "kube-system" {
		t.Errorf("its namespaces are %v", w.NamespaceSelector)
	}
	chosen, err := take(t, strings.ReplaceAll(written, "GROUP", "apps")+"  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}\n", false)
	if err != nil || len(chosen.NamespaceSelector.MatchExpressions) != 0 {
		t.Errorf("the namespaces that it has chosen are %v: %v", chosen, err)
	}
}

func TestFailForCoreGroupsIsAnOption(t *testing.T) {
	for group, core := range map[string]bool{
		`""`: true, "apps": true, `"*"`: true, "rbac.authorization.k8s.io": true, "example.com": false, "widgets.k8s.io.example.com": false,
	} {
		manifest := strings.ReplaceAll(written, "GROUP", group) + "  failurePolicy: Fail\n"
		if _, err := take(t, manifest, false); (err != nil) != core {
			t.Errorf("group %s: %v", group, err)
		}
		if w, err := take(t, manifest, true); err != nil || *w.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("group %s, allowed: %v, %v", group, w, err)
		}
	}
}

func TestWhatCannotBeInstalledIsRefused(t *testing.T) {
	right := strings.ReplaceAll(written, "GROUP", "apps")
	for what, manifest := range map[string]string{
		"another kind":    "kind: ConfigMap\napiVersion: v1\n",
		"an unknown key":  strings.Replace(right, "sideEffects", "sideEffect", 1),
		"no path":         strings.Replace(right, ", path: /validate", "", 1),
		"no side effects": strings.Replace(right, "  sideEffects: None\n", "", 1),
		"the same twice":  right + "---" + right,
		"no YAML":         "{",
		"a short name":    strings.Replace(right, "v.example.com", "example.com", 1),
		"a long name":     strings.Replace(right, "v.example.com", strings.Repeat("v.", 122)+"example.com", 1),
		"side effects":    strings.Replace(right, "sideEffects: None", "sideEffects: Some", 1),
		"a long timeout":  right + "  timeoutSeconds: 31\n",
		"no timeout":      right + "  timeoutSeconds: 0\n",
	} {
		if _, err := take(t, manifest, false); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
}

// TestAKeyIsOfOneNameAndOneCluster, also where both together read the same.
func TestAKeyIsOfOneNameAndOneCluster(t *testing.T) {
	key := newKey()
	proof := caller{name: "east", identity: "id"}.proof(key)
	for _, other := range []caller{{name: "eas", identity: "tid"}, {name: "easti", identity: "d"}, {name: "eastid"}, {identity: "eastid"}} {
		if other.proof(key) == proof {
			t.Errorf("%+v has the key of another", other)
		}
	}
}

// FuzzAPathIsOfItsMemberAlone: any name comes back as it was, whatever API servers do to paths, and with that key alone.
func FuzzAPathIsOfItsMemberAlone(f *testing.F) {
	for _, name := range []string{"east", "team/east", "a~1b", ".", "..", "~", "a.b", "a//b", "%2F"} {
		f.Add(name, "id")
		f.Add("east", name)
	}
	key, other := newKey(), newKey()
	f.Fuzz(func(t *testing.T, name, identity string) {
		if name == "" || strings.Contains(name+identity, "\x00") {
			return
		}
		c := caller{mcreconcile.ClusterName(name), identity, "/validate"}
		sent := path.Join("/", c.path(key))
		if got, authentic := callerOf(sent, [][]byte{other, key}); !authentic || got != c {
			t.Errorf("%q is of %+v, %v", sent, got, authentic)
		}
		if _, authentic := callerOf(sent, [][]byte{other}); authentic {
			t.Errorf("%q is authentic with another key", sent)
		}
		if got, authentic := callerOf(strings.Replace(sent, prefix, prefix+"x", 1), [][]byte{key}); authentic {
			t.Errorf("%q is authentic for %+v", sent, got)
		}
	})
}
