package fleet

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// existing is a cluster that a provider has made: the fleet calls nothing of it to engage it.
type existing struct{ cluster.Cluster }

// GetAPIReader implements cluster.Cluster: nobody can be asked which cluster it is.
func (*existing) GetAPIReader() client.Reader { return nil }

// running starts a fleet, which ends with the test.
func running(tb testing.TB, opts Options) *Fleet {
	tb.Helper()
	f := New(opts)
	tb.Cleanup(runs(tb, f))
	return f
}

// runs lets a fleet live until end is called, which returns when it is drained.
func runs(tb testing.TB, f *Fleet) (end func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- f.Run(ctx, nil, NewProvider("test", func(ctx context.Context, _ cluster.Cluster, _ Members) error {
			close(begun)
			<-ctx.Done()
			return nil
		}))
	}()
	<-begun
	return func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}

// join reports a member that is Ready at once, and returns its engagement.
func join(t *testing.T, f *Fleet, name ClusterName) *Engagement {
	t.Helper()
	if err := f.set(Member{Name: name, Cluster: &existing{}}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	e, err := f.Engagement(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestADrainThatTakesLongIsLoggedOnce: the log names the cluster and the reconcile that does not heed its context,
// whether the member was removed or connected anew.
func TestADrainThatTakesLongIsLoggedOnce(t *testing.T) {
	ways := map[string]func(t *testing.T, f *Fleet){
		"Removed": func(t *testing.T, f *Fleet) {
			t.Helper()
			f.remove("a")
		},
		"Replaced": func(t *testing.T, f *Fleet) {
			t.Helper()
			join(t, f, "a")
		},
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := make(chan string, 10)
				log := funcr.New(func(_, line string) {
					if strings.Contains(line, "Draining takes long") {
						slow <- line
					}
				}, funcr.Options{})
				f := running(t, Options{Logger: log})
				_, leave, err := join(t, f, "a").Join(t.Context(), named("the reconcile of x"))
				if err != nil {
					t.Fatal(err)
				}
				end(t, f)
				<-time.After(drainPatience - time.Second)
				synctest.Wait()
				if len(slow) != 0 {
					t.Errorf("logged before %s: %s", drainPatience, <-slow)
				}
				<-time.After(time.Hour)
				synctest.Wait()
				if len(slow) != 1 {
					t.Fatalf("%d lines after an hour, want one", len(slow))
				}
				if line := <-slow; !strings.Contains(line, `"cluster"="a"`) || !strings.Contains(line, "the reconcile of x") {
					t.Errorf("the line does not name the cluster and what runs: %s", line)
				}
				leave()
			})
		})
	}
}
