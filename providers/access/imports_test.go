package access_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	tokens "github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

// rolesOfPage writes a manifest with what a page says under a heading.
func rolesOfPage(t *testing.T, page, heading string) (path string) {
	t.Helper()
	text, err := os.ReadFile(page)
	hubtest.Must(t, err)
	_, rest, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	_, rest, found := strings.Cut(rest, "```yaml\n")
	if !found {
		t.Fatalf("%s has no manifest under %q", page, heading)
	}
	manifest, _, _ := strings.Cut(rest, "```")
	path = filepath.Join(t.TempDir(), "rights.yaml")
	hubtest.Must(t, os.WriteFile(path, []byte(manifest), 0o600))
	return path
}

// TestTheRightsOfTheImportsPageSufficeAndAreNeeded: no right is missing, and none is too much.
func TestTheRightsOfTheImportsPageSufficeAndAreNeeded(t *testing.T) {
	t.Parallel()
	started, clusters := startHub(t, 1)
	account := started.RecordRights(t, mctest.Rights{
		File:   rolesOfPage(t, "../../docs/imports.md", "Rights of the controller"),
		Needed: map[string]string{"patch events.events.k8s.io": "an event that comes again is counted, some minutes later"},
	})
	h := hub{started.ControlPlane, "team-a"}
	output.Collect(t, h.ControlPlane, h.namespace)
	east := accesstest.Mint(t, h.ControlPlane, clusters[0], h.namespace, "east")
	allowed := []v1alpha1.AllowedImports{{Namespaces: []string{h.namespace}, ServiceAccounts: []string{accesstest.Namespace + "/" + accesstest.Worker}}}
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) { a.Spec.AllowedImports = allowed })
	accesstest.Create(t, h.ControlPlane, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: accesstest.Operator}})
	west := accesstest.New(clusters[0], h.namespace, "west") // which does not trust the hub
	west.Spec.Federated, west.Spec.AllowedImports = &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}, allowed
	accesstest.Create(t, h.ControlPlane, west)
	mgr, err := ctrl.NewManager(account.Config(), ctrl.Options{
		Scheme: h.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{h.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	hubtest.Must(t, err)
	hubtest.Must(t, tokens.Imports{Namespace: h.namespace}.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); hubtest.Must(t, <-ended) })

	for _, cluster := range []string{"east", "west"} {
		accesstest.Create(t, h.ControlPlane, &v1alpha1.ServiceAccountImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "of-" + cluster},
			Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: cluster, Namespace: accesstest.Namespace, Name: accesstest.Worker},
		})
	}
	h.waitForImport(t, "of-east", v1alpha1.ReasonAsExpected)
	h.waitForImport(t, "of-west", v1alpha1.ReasonTokenRefused)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "of-east"}}
	key := client.ObjectKeyFromObject(secret)
	hubtest.Must(t, h.Client().Get(t.Context(), key, secret))
	written := secret.DeepCopy()
	delete(secret.Data, v1alpha1.ImportToken)
	hubtest.Must(t, h.Client().Update(t.Context(), secret))
	i := h.waitForImport(t, "of-east", v1alpha1.ReasonAsExpected)
	i.Spec.ExpirationSeconds = 900 // which is news for the controller
	hubtest.Must(t, h.Client().Update(t.Context(), i))
	eventually(t, "the Secret is written anew", func() bool {
		hubtest.Must(t, h.Client().Get(t.Context(), key, secret))
		return len(secret.Data) == len(written.Data)
	})
	h.update(t, east.Name, func(a *v1alpha1.ClusterAccess) { a.Spec.AllowedImports = nil })
	h.waitForImport(t, "of-east", v1alpha1.ReasonNotAllowed)
	if err := h.Client().Get(t.Context(), key, secret); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret is not taken back: %v", err)
	}
	if unused := account.Unused(t); len(unused) > 0 {
		t.Errorf("the page gives too much: %v", unused)
	}
}

// waitForImport waits until the condition Ready of an import has a reason, and returns the import.
func (h hub) waitForImport(t *testing.T, name, reason string) *v1alpha1.ServiceAccountImport {
	t.Helper()
	i := &v1alpha1.ServiceAccountImport{}
	eventually(t, name+" is "+reason, func() bool {
		hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, i))
		ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == reason && ready.ObservedGeneration == i.Generation
	})
	return i
}
