package fleet

import (
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// engaged returns a member that is Ready, and its cache.
func engaged(t *testing.T) (*mctest.ControlPlane, *candidCache) {
	t.Helper()
	f := running(t, Options{})
	cp := pool.Start(t, mctest.Options{}).Local
	if err := f.set(Member{Name: "a", Config: cp.Config()}); err != nil {
		t.Fatal(err)
	}
	for now := range f.Changes(t.Context()) {
		if now.Status.State == Ready {
			return cp, now.Engagement.Cluster().GetCache().(*candidCache) //nolint:forcetypeassert // it is made by the fleet
		}
	}
	t.Fatal("the member is not Ready")
	return nil, nil
}

// TestAnInformerIsReleasedThatNobodyUses: not one that has a handler, or that was read since it was last asked for.
func TestAnInformerIsReleasedThatNobodyUses(t *testing.T) {
	_, c := engaged(t)
	release := func(want bool, when string) {
		t.Helper()
		released, err := c.ReleaseInformer(t.Context(), &corev1.ConfigMap{})
		if err != nil || released != want {
			t.Errorf("%s, released: %t, %v; want %t", when, released, err, want)
		}
	}
	release(true, "never used")
	i, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	release(false, "with a handler")
	if err := i.RemoveEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
			t.Fatal(err)
		}
		release(false, "read since then")
	}
	release(true, "not used any more")
	mustBecome(i.IsStopped)
	if err := c.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
		t.Errorf("reading it again: %v", err)
	}
}

// TestAHandlerThatIsAddedWhileItsInformerIsReleasedHasAllEvents: either the informer stays, or the handler is refused.
func TestAHandlerThatIsAddedWhileItsInformerIsReleasedHasAllEvents(t *testing.T) {
	cp, c := engaged(t)
	ns := cp.CreateNamespace(t)
	stays := 0
	for n := range 30 {
		i, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(true))
		if err != nil {
			t.Fatal(err)
		}
		seen := make(chan string, 1000)
		var both sync.WaitGroup
		both.Go(func() { _, _ = c.ReleaseInformer(t.Context(), &corev1.ConfigMap{}) })
		handler, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Namespace == ns {
				seen <- cm.Name
			}
		}})
		both.Wait()
		if err != nil {
			continue
		}
		stays++
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "seen-"}}
		if err := cp.Client().Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		for patience := time.After(time.Minute); ; {
			select {
			case name := <-seen:
				if name != cm.Name {
					continue
				}
			case <-patience:
				t.Fatalf("round %d: the handler does not hear of an object", n)
			}
			break
		}
		if err := errors.Join(i.RemoveEventHandler(handler), client.IgnoreNotFound(cp.Client().Delete(t.Context(), cm))); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the informer stayed in %d of 30 rounds", stays)
}
