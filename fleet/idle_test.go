package fleet

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// goroutinesIn counts the goroutines that have one of these in their stack, or were started by it.
func goroutinesIn(functions ...string) (n int) {
	dump := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(dump[:runtime.Stack(dump, true)]), "\n\n") {
		for _, function := range functions {
			if strings.Contains(stack, function) {
				n++
				break
			}
		}
	}
	return n
}

// mustBecome waits until a condition holds; the test's own time limit ends it.
func mustBecome(holds func() bool) {
	for look := time.Tick(10 * time.Millisecond); !holds(); {
		<-look
	}
}

// TestAnIdleMemberHasFourGoroutinesBesideItsConnection: the one that runs its cache, the informer, what it waits for to
// resync, and the one that reads the watch.
func TestAnIdleMemberHasFourGoroutinesBesideItsConnection(t *testing.T) {
	f := running(t, Options{})
	if err := f.set(Member{Name: "a", Config: pool.Start(t, mctest.Options{}).Local.Config()}); err != nil {
		t.Fatal(err)
	}
	var e *Engagement
	for now := range f.Changes(t.Context()) {
		if now.Status.State == Ready {
			e = now.Engagement
			break
		}
	}
	c := e.Cluster().GetCache()
	i, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	mustBecome(func() bool {
		return goroutinesIn("/fleet.(*member)", "/client-go/tools/cache.", "/apimachinery/pkg/watch.", "/pkg/internal/syncs.", "context.(*cancelCtx)") == 4
	})

	if err := c.RemoveInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	mustBecome(i.IsStopped)
	mustBecome(func() bool { return goroutinesIn("/client-go/tools/cache.") == 0 })
}

// refresher is a function that is a Refresher.
type refresher func(ctx context.Context, name ClusterName) error

func (r refresher) Refresh(ctx context.Context, name ClusterName) error { return r(ctx, name) }

// TestAMemberThatRestsHearsOfCredentialsThatAreRefused: nothing runs for it then but what its connection needs.
func TestAMemberThatRestsHearsOfCredentialsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		asked := 0
		f.refresher = refresher(func(context.Context, ClusterName) error { asked++; return nil })
		if err := f.set(Member{Name: "a", Cluster: &existing{}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.mu.Lock()
		m := f.members["a"]
		f.mu.Unlock()
		for want := range 3 {
			synctest.Wait()
			if n := goroutinesIn("(*member).run("); n != 0 || asked != want {
				t.Errorf("%d goroutines run for an idle member, and its provider was asked %d times, want none and %d", n, asked, want)
			}
			m.tell(m.denied)
			synctest.Wait()
			<-time.After(f.opts.MaxRetryPeriod)
		}
		<-f.remove("a")
	})
}
