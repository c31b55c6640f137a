package objects_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func TestRunEndsWithItsContextAndLeavesNothingBehind(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	local := startLocal(t, cp.Config())
	if err := local.GetAPIReader().Get(t.Context(), client.ObjectKey{Name: ns.string}, &corev1.Namespace{}); err != nil {
		t.Fatal(err) // the connection belongs to the cluster
	}
	forbidden := startLocal(t, cp.AddUser(t, "nobody"))
	if err := forbidden.GetAPIReader().Get(t.Context(), client.ObjectKey{Name: ns.string}, &corev1.Namespace{}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)

	t.Run("while a member is draining", func(t *testing.T) {
		ignored := goleak.IgnoreCurrent()
		r := newRecording()
		stop := startWith(t.Context(), t, local, provider(ns.string), r)
		r.waitForHosts(t, hosts{"a": "1"})
		ns.delete(secret)
		r.waitUntil(t, "a removal", func() bool { return r.removals["a"] > 0 })
		stop()
		waitForGoroutines(t, ignored)
	})
	t.Run("while the watch is refused", func(t *testing.T) {
		ignored := goleak.IgnoreCurrent()
		r := newRecording()
		stop := startWith(t.Context(), t, forbidden, provider(ns.string), r)
		r.waitForProblem(t, secretsIn(ns, ours), "secrets is forbidden")
		stop()
		waitForGoroutines(t, ignored)
	})
	t.Run("while the kind is not served", func(t *testing.T) {
		ignored := goleak.IgnoreCurrent()
		r := newRecording()
		p := objects.Provider[*unstructured.Unstructured]{Object: gadget(), Members: describeGadget}
		stop := startWith(t.Context(), t, local, p, r)
		r.waitForProblem(t, "Gadget objects", "no matches for kind")
		stop()
		waitForGoroutines(t, ignored)
	})
}

// waitForGoroutines waits until there are no goroutines but those that are ignored. Those of connections and watches end
// some time after their users.
func waitForGoroutines(t *testing.T, ignored goleak.Option) {
	t.Helper()
	deadline := time.Now().Add(patience)
	err := goleak.Find(ignored)
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find(ignored) // waits a moment if there are any
	}
	if err != nil {
		t.Error(err)
	}
}
