package reference

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// calls is a fleet that notes what it is told.
type calls struct {
	fleet.Members // for methods that are not called

	mu    sync.Mutex
	notes []string
}

// Set implements fleet.Members.
func (c *calls) Set(m fleet.Member) error {
	c.note("set " + string(m.Name) + " " + m.Revision)
	return nil
}

// Leave implements fleet.Members.
func (c *calls) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	c.note("leave " + string(m.Name) + " " + m.Revision)
	return make(chan struct{}), nil
}

// Remove implements fleet.Members.
func (c *calls) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	c.note("remove " + string(name))
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
	c.Remove(described(object, "").Name)
}

func TestAMemberGoesOnAsLongAsAnObjectDescribesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &calls{}
		c := newClaims(told, logr.Discard())
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
		told.want(t, "remove hub/prod")
		remove(t, c, "a")
		told.want(t)
		if len(c.claimed) > 0 {
			t.Errorf("there is something left: %v", c.claimed)
		}
	})
}

func TestAClaimSaysWhichMemberItIsFor(t *testing.T) {
	for _, obj := range []client.ObjectKey{{Namespace: "hub", Name: "apps"}, {Name: "east"}} {
		if got := memberOf(claimOf("hub/prod/a.yaml", "Kustomization", obj)); got != "hub/prod/a.yaml" {
			t.Errorf("got %s for the claim of %s", got, obj)
		}
	}
}

// refusing is a fleet that takes no member.
type refusing struct{ fleet.Members }

// Set implements fleet.Members.
func (refusing) Set(fleet.Member) error { return fleet.ErrInvalidMember }

func TestOfAMemberThatIsRefusedNothingIsKept(t *testing.T) {
	c := newClaims(refusing{}, logr.Discard())
	if err := c.Set(described("a", "1")); !errors.Is(err, fleet.ErrInvalidMember) {
		t.Errorf("got %v, want that the member is refused", err)
	}
	if len(c.claimed) > 0 {
		t.Errorf("there is something left: %v", c.claimed)
	}
}

func TestTheIndexForgetsObjectsThatAreGone(t *testing.T) {
	site := &unstructured.Unstructured{Object: map[string]any{}}
	site.SetNamespace("hub")
	site.SetName("a")
	f := &follower{kind: "Site", named: newIndex(), provider: Provider{
		Format: Format{Read: Fields{SecretName: "spec.secret"}.Read}, Namespaces: []string{"hub"},
	}}
	engine := f.engine(schema.GroupVersionKind{Kind: "Site"}, runtime.NewScheme())
	names := func(secret string) []client.ObjectKey {
		return f.named.by(client.ObjectKey{Namespace: "hub", Name: secret})
	}
	for _, secret := range []string{"prod", "stage"} {
		site.Object["spec"] = map[string]any{"secret": secret}
		if _, err := engine.Members(t.Context(), site, noSecrets{}); err != nil || len(names(secret)) != 1 {
			t.Errorf("by the Secret %q there are %v (%v)", secret, names(secret), err)
		}
	}
	if len(names("prod")) > 0 {
		t.Errorf("by the Secret that is not named any more there are %v", names("prod"))
	}
	engine.Gone(client.ObjectKeyFromObject(site)) // although no member was reported
	if len(f.named.byObject)+len(f.named.bySecret) > 0 {
		t.Errorf("there is something left: %v, %v", f.named.byObject, f.named.bySecret)
	}
}

// noSecrets has no Secret.
type noSecrets struct{ objects.Reader }

// Get implements objects.Reader.
func (noSecrets) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
}

// labelledSecret has one Secret, with these labels.
type labelledSecret struct {
	objects.Reader

	labels map[string]string
}

// Get implements objects.Reader.
func (l labelledSecret) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetLabels(l.labels)
	return nil
}

func TestNoObjectForgesLabelsThatSayWhereAMemberComesFrom(t *testing.T) {
	given := map[string]string{"env": "prod", kubeconfig.ArgoCDProjectLabel: "theirs"}
	site := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"secret": "prod"}}}
	site.SetNamespace("hub")
	site.SetLabels(given)
	for _, perSecret := range []bool{false, true} {
		f := &follower{kind: "Site", named: newIndex(), provider: Provider{
			Format: Format{Read: Fields{SecretName: "spec.secret"}.Read, PerSecret: perSecret}, Namespaces: []string{"hub"},
		}}
		members, err := f.members(t.Context(), site, labelledSecret{labels: given})
		if err != nil || len(members) != 1 {
			t.Fatalf("got members %v, %v", members, err)
		}
		if diff := cmp.Diff(map[string]string{"env": "prod"}, members[0].Labels); diff != "" {
			t.Errorf("labels, per Secret: %t (-want +got):\n%s", perSecret, diff)
		}
	}
}

// leave reports that a claim is about to end, and says whether it has.
func leave(t *testing.T, c *claims, m fleet.Member) (ended bool) {
	t.Helper()
	left, err := c.Leave(m)
	if err != nil {
		t.Error(err)
	}
	select {
	case <-left:
		return true
	default:
		return false
	}
}

func TestTheLastClaimLetsTheMemberLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := &calls{}
		c := newClaims(fleet, logr.Discard())
		first, second := described("a", "1"), described("b", "2")
		set(t, c, first)
		set(t, c, second)
		fleet.want(t, "set hub/prod 1", "set hub/prod 1")
		if !leave(t, c, first) {
			t.Error("a claim beside another one is waited for")
		}
		fleet.want(t, "set hub/prod 2")
		if !leave(t, c, first) {
			t.Error("a claim that has ended is waited for")
		}
		c.Remove(first.Name)
		fleet.want(t, "set hub/prod 2", "set hub/prod 2") // the same again
		for range 2 {
			if leave(t, c, second) {
				t.Error("the member has left at once")
			}
		}
		fleet.want(t, "leave hub/prod 2", "leave hub/prod 2")
		set(t, c, first) // another object describes it: it stays
		if !leave(t, c, second) {
			t.Error("a claim beside another one is waited for")
		}
		fleet.want(t, "set hub/prod 1", "set hub/prod 1")
		c.Remove(second.Name)
		fleet.want(t, "set hub/prod 1")
		leave(t, c, first)
		c.Remove(first.Name)
		fleet.want(t, "leave hub/prod 1", "remove hub/prod")
	})
}
