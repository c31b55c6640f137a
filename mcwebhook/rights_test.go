package mcwebhook

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// manifestsOfPage writes the manifests of the page, of the hub and of members, the latter with what the handlers of the tests read.
func manifestsOfPage(t *testing.T) (hub, member string) {
	t.Helper()
	text, err := os.ReadFile("../docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
	parts := strings.Split(section, "```")
	if len(parts) < 4 {
		t.Fatal("the page does not say the rights")
	}
	const read = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: handlers}
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: connect} # docs/operating.md
rules:
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
`
	folder := t.TempDir()
	hub, member = filepath.Join(folder, "hub.yaml"), filepath.Join(folder, "member.yaml")
	for path, manifest := range map[string]string{hub: parts[1], member: parts[3] + read} {
		if err := os.WriteFile(path, []byte(strings.TrimPrefix(manifest, "yaml\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return hub, member
}

// TestTheRightsOfThePageSufficeAndAreNeeded: none is missing, and none is too much.
func TestTheRightsOfThePageSufficeAndAreNeeded(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	ofHub, ofMember := manifestsOfPage(t)
	w.hub = w.Local.RecordRights(t, mctest.Rights{File: ofHub}).Config()
	joined := fleet.Member{Name: "member-1", Config: cp.RecordRights(t, mctest.Rights{File: ofMember}).Config()}
	w.namespace, w.Members = "fleet", nil
	p := w.newProgram("Fail", func(o *Options) { o.Name = "limits" })
	p.join(joined)
	p.start()
	w.isAsked(cp)
	p.call(caller{"member-1", "", "/"}.path(newKey())) // the Secret is read
	for _, name := range []string{validating, mutating} {
		k := kind{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind(name)}
		w.addsWebhook(cp, k.object("limits"))
	}
	old := p.path("member-1", "/validate--v1-configmap")
	s := p.hooks.keeper.store
	rotated := s.now.Load()
	secret := w.secretOf("limits")
	secret.Annotations = map[string]string{AnnotationRotate: "now"}
	if err := w.Local.Client().Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.eventually("the Secret is changed", func() bool { return string(s.now.Load().key) != string(rotated.key) })
	if code, answer := p.call(old); code == http.StatusNotFound {
		t.Error(answer)
	}
	left, err := p.Leave(joined)
	if err != nil {
		t.Fatal(err)
	}
	<-left
}

// addsWebhook adds a webhook of others to a configuration, and waits until it is gone again.
func (w *world) addsWebhook(cp *mctest.ControlPlane, c *unstructured.Unstructured) {
	w.t.Helper()
	w.get(cp, c)
	webhooks, _, _ := unstructured.NestedSlice(c.Object, "webhooks")
	more := runtime.DeepCopyJSON(webhooks[0].(map[string]any)) //nolint:forcetypeassert // so it is
	more["name"] = "more.example.com"
	if err := unstructured.SetNestedSlice(c.Object, append(slices.Clone(webhooks), more), "webhooks"); err != nil {
		w.t.Fatal(err)
	}
	if err := cp.Client().Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("what others have added is gone", func() bool {
		w.get(cp, c)
		now, _, _ := unstructured.NestedSlice(c.Object, "webhooks")
		return len(now) == len(webhooks)
	})
}
