package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// speaking is a cluster that a provider has made, which says which it is.
type speaking struct {
	existing
	client.Reader

	mu    sync.Mutex // guards what follows
	uid   types.UID
	err   error
	asked int
}

// say has it say something else from now on. It returns how often it was asked before.
func (c *speaking) say(uid types.UID, err error) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid, c.err = uid, err
	return c.asked
}

func (c *speaking) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// GetAPIReader implements cluster.Cluster.
func (c *speaking) GetAPIReader() client.Reader { return c }

// Get implements client.Reader, for the namespace kube-system.
func (c *speaking) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	obj.SetUID(c.uid)
	return c.err
}

// TestWhichClusterItIsThatAProviderMadeIsAskedAgain, about once a minute: nobody else notices that another one answers, or that the
// right to read it was granted.
func TestWhichClusterItIsThatAProviderMadeIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, made := running(t, Options{}), &speaking{}
		set(t, f, Member{Name: "a", Cluster: made})
		engagement := func() *Engagement {
			t.Helper()
			synctest.Wait()
			e, err := f.Engagement("a")
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		before := engagement()
		for _, c := range []struct {
			name  string
			uid   types.UID
			err   error
			want  string
			isNew bool
		}{
			{"it does not say it", "", nil, "", false},
			{"the right to read it is granted", "1", nil, "1", true},
			{"it is the same", "1", nil, "1", false},
			{"it gives no answer", "2", errors.New("no answer"), "1", false},
			{"it does not say it any more", "", nil, "1", false},
			{"another one answers", "2", nil, "2", true},
		} {
			asked := made.say(c.uid, c.err)
			<-time.After(3 * time.Minute)
			now := engagement()
			if now.Identity() != c.want || (now != before) != c.isNew {
				t.Errorf("%s: its identity is %q, and it was engaged anew: %t; want %q, %t", c.name, now.Identity(), now != before, c.want, c.isNew)
			}
			if n := made.times() - asked; n < 2 || n > 5 {
				t.Errorf("%s: it was asked %d times in three minutes", c.name, n)
			}
			if c.uid == "2" && c.isNew && !errors.Is(context.Cause(before.Context()), ErrAnotherCluster) {
				t.Errorf("%s: the engagement before has ended since %v", c.name, context.Cause(before.Context()))
			}
			if s := status(t, f, "a"); s.State != Ready {
				t.Errorf("%s: it is %s", c.name, s.State)
			}
			before = now
		}
		set(t, f, Member{Name: "a", Cluster: made, Identity: "said"})
		synctest.Wait()
		asked := made.times()
		if <-time.After(time.Hour); made.times() != asked {
			t.Errorf("one of which the provider says it was asked %d times", made.times()-asked)
		}
	})
}

// TestAnotherClusterThatAnswersForAWhile is no member once the one before is back.
func TestAnotherClusterThatAnswersForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, made := running(t, Options{RefuseDuplicates: true}), &speaking{uid: "1"}
		set(t, f, Member{Name: "a", Cluster: made})
		set(t, f, Member{Name: "b", Cluster: &speaking{uid: "2"}})
		synctest.Wait()
		before, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		made.say("2", nil) // which is refused
		<-time.After(3 * time.Minute)
		if s := status(t, f, "a"); s.State != Unreachable || s.Reason != ReasonAnotherCluster {
			t.Errorf("it is %s (%s), want that another cluster answers", s.State, s.Reason)
		}
		made.say("1", nil)
		<-time.After(10 * time.Minute)
		if s := status(t, f, "a"); s.State != Ready || before.Identity() != "1" {
			t.Errorf("it is %s (%s), want Ready", s.State, s.Reason)
		}
	})
}
