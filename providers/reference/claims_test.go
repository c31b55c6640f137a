package reference

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// calls is a fleet that notes what it is told.
type calls struct {
	fleet.Members // for methods that are not called

	mu      sync.Mutex
	notes   []string
	drained chan struct{} // a removal returns when it is closed
}

// Set implements fleet.Members.
func (c *calls) Set(m fleet.Member) error {
	c.note("set " + string(m.Name) + " " + m.Revision)
	return nil
}

// Remove implements fleet.Members.
func (c *calls) Remove(_ context.Context, name fleet.ClusterName) error {
	c.note("remove " + string(name))
	<-c.drained
	c.note("removed " + string(name))
	return nil
}

func (c *calls) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, text)
}

// want fails the test unless the fleet was told exactly this since the last time.
func (c *calls) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.notes); diff != "" {
		t.Errorf("the fleet was told otherwise (-want, +got):\n%s", diff)
	}
	c.notes = nil
}

// described is the member "prod" as an object describes it; without a revision it cannot be reached.
func described(object, revision string) fleet.Member {
	m := fleet.Member{Name: claimOf("hub/prod", "Kustomization", client.ObjectKey{Namespace: "hub", Name: object}), Revision: revision}
	if revision == "" {
		m.Err = errors.New("no Secret")
	}
	return m
}

func set(t *testing.T, c *claims, m fleet.Member) {
	t.Helper()
	if err := c.Set(m); err != nil {
		t.Error(err)
	}
}

func remove(t *testing.T, c *claims, object string) {
	t.Helper()
	if err := c.Remove(t.Context(), described(object, "").Name); err != nil {
		t.Error(err)
	}
}

func TestAMemberGoesOnAsLongAsAnObjectDescribesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &calls{drained: make(chan struct{})}
		close(told.drained)
		c := newClaims(told)
		set(t, c, described("b", "1"))
		told.want(t, "set hub/prod 1")
		set(t, c, described("a", "2"))
		told.want(t, "set hub/prod 2")
		set(t, c, described("b", "3")) // the first by name has the word, whoever came first
		told.want(t, "set hub/prod 2")
		set(t, c, described("a", "")) // but not if it knows no way
		told.want(t, "set hub/prod 3")
		remove(t, c, "b")
		told.want(t, "set hub/prod ")
		remove(t, c, "b")
		told.want(t, "set hub/prod ")
		remove(t, c, "a")
		told.want(t, "remove hub/prod", "removed hub/prod")
		remove(t, c, "a")
		told.want(t)
		if len(c.claimed) > 0 {
			t.Errorf("there is something left: %v", c.claimed)
		}
	})
}

func TestAMemberThatIsClaimedWhileItIsDrainedIsReportedAfterThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &calls{drained: make(chan struct{})}
		c := newClaims(told)
		set(t, c, described("a", "1"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			remove(t, c, "a")
		}()
		told.want(t, "set hub/prod 1", "remove hub/prod")
		set(t, c, described("b", "2"))
		remove(t, c, "b")
		set(t, c, described("c", "3"))
		told.want(t)
		close(told.drained)
		<-done
		told.want(t, "removed hub/prod", "set hub/prod 3")
	})
}

func TestAClaimSaysWhoseItIs(t *testing.T) {
	for _, want := range []client.ObjectKey{{Namespace: "hub", Name: "apps"}, {Name: "east"}} {
		name, got := parseClaim(claimOf("hub/prod/a.yaml", "Kustomization", want))
		if name != "hub/prod/a.yaml" || got != want {
			t.Errorf("got %s and %s, want those of %s", name, got, want)
		}
	}
}

func TestTheIndexForgetsObjectsThatAreGone(t *testing.T) {
	a, secret := client.ObjectKey{Namespace: "hub", Name: "a"}, client.ObjectKey{Namespace: "hub", Name: "prod"}
	other := client.ObjectKey{Namespace: "hub", Name: "stage"}
	claim, otherClaim := claimOf("prod", "Place", a), claimOf("stage", "Place", a)
	names := func(i *index) string {
		var all []string
		for _, s := range []client.ObjectKey{secret, other} {
			for range i.by(s) {
				all = append(all, s.Name)
			}
		}
		return strings.Join(all, " ")
	}
	for name, tc := range map[string]struct {
		do   func(i *index)
		want string
	}{
		"an object that is there":                    {func(i *index) { i.set(a, secret); i.reported(claim) }, "prod"},
		"one that names no Secret any more":          {func(i *index) { i.set(a, secret); i.set(a, client.ObjectKey{}) }, ""},
		"one that is gone":                           {func(i *index) { i.set(a, secret); i.reported(claim); i.removed(claim) }, ""},
		"one that came back before it was withdrawn": {func(i *index) { i.set(a, secret); i.reported(claim); i.set(a, secret); i.removed(claim) }, "prod"},
		"one that names another Secret":              {func(i *index) { i.set(a, secret); i.reported(claim); i.set(a, other); i.removed(claim) }, "stage"},
		"one whose second claim came before the first went": {
			func(i *index) {
				i.set(a, secret)
				i.reported(claim)
				i.set(a, other)
				i.reported(otherClaim)
				i.removed(claim)
			}, "stage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIndex()
			tc.do(i)
			if got := names(i); got != tc.want {
				t.Errorf("by the Secret %q it is found, want %q", got, tc.want)
			}
			if tc.want == "" && len(i.byObject)+len(i.bySecret) > 0 {
				t.Errorf("there is something left: %v, %v", i.byObject, i.bySecret)
			}
		})
	}
}
