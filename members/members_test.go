package members_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/members"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func TestAMemberSaysWhatTheFleetKnows(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	cp := s.Members[0]
	m.set(
		fleet.Member{Name: "east", Config: cp.Config(), Labels: map[string]string{"tier": "production", "not a label": "x"}},
		fleet.Member{Name: "Team-a/prod", Err: errors.New("it does not parse")},
	)
	m.start()
	got := s.becomes("east", "has a version", func(m *v1alpha1.Member) bool { return m.Status.Version != "" })
	status, _ := m.GetFleet().Status("east")
	switch st := got.Status; {
	case st.State != "Ready" || st.Reason != "" || st.Identity != status.Identity || st.Server != cp.Config().Host:
		t.Errorf("its status is %+v", st)
	case !strings.HasPrefix(st.Version, "v1.") || st.Since.IsZero() || st.ObservedGeneration != got.Generation:
		t.Errorf("its status is %+v", st)
	case st.Labels["not a label"] != "x" || got.Labels["tier"] != "production" || len(got.Labels) != 1:
		t.Errorf("its labels are %v, its status has %v", got.Labels, st.Labels)
	case !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionAccepted):
		t.Errorf("its conditions are %+v", st.Conditions)
	}
	lease := &coordinationv1.Lease{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: got.Status.Lease.Namespace, Name: got.Status.Lease.Name}, lease); err != nil {
		t.Error(err)
	} else if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		t.Errorf("the writer's Lease is %+v", lease.Spec)
	}
	broken := s.is("Team-a/prod", fleet.Pending)
	if broken.Status.Reason != fleet.ReasonInvalid || broken.Status.Message != "it does not parse" || broken.Spec.ClusterName != "Team-a/prod" {
		t.Errorf("one that is not described: %+v", broken)
	}
	m.set(fleet.Member{Name: "east", Config: cp.Config(), Labels: map[string]string{"zone": "1"}})
	s.becomes("east", "has other labels", func(m *v1alpha1.Member) bool {
		return m.Labels["zone"] == "1" && m.Labels["tier"] == "" && len(m.Status.Labels) == 1
	})
	<-m.Remove("east")
	s.eventually("the Member of a member that has left is gone", func() bool { return s.get("east") == nil })
}

// TestAMemberSaysWhatIsToBeLookedAfter: credentials that end, a kind that cannot be had, another name of the same cluster.
func TestAMemberSaysWhatIsToBeLookedAfter(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	if err := mcbuilder.ControllerManagedBy(m).For(widget).WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).Complete(m); err != nil {
		t.Fatal(err)
	}
	cp, expires := s.Members[0], time.Now().Add(time.Hour)
	m.set(fleet.Member{Name: "east", Config: cp.Config(), Expires: expires}, fleet.Member{Name: "twin", Config: cp.Config()})
	m.start()
	got := s.becomes("east", "has a kind and a duplicate", func(m *v1alpha1.Member) bool {
		return len(m.Status.NotSynced) == 1 && len(m.Status.Duplicates) == 1
	})
	kind := got.Status.NotSynced[0]
	if kind.Kind != "Widget.example.com" || kind.Reason == "" || kind.Message == "" || kind.Since.IsZero() || got.Status.Duplicates[0] != "twin" {
		t.Errorf("its status is %+v", got.Status)
	}
	if is := got.Status.Expires.Unix(); is != expires.Unix() {
		t.Errorf("its credentials end at %s, want %s", got.Status.Expires, expires)
	}
}

// forbidsStatus refuses what writes the status of Members.
type forbidsStatus struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f forbidsStatus) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, "/status") {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	return f.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (f forbidsStatus) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }

// TestAMemberWithoutAStatusGoesWithItsCluster, though nothing but this replica's memory tells it from one that never was a member's.
func TestAMemberWithoutAStatusGoesWithItsCluster(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	cfg := s.Local.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return forbidsStatus{rt} })
	m := s.newManager(cfg)
	m.set(fleet.Member{Name: "east", Err: errors.New("it does not parse")})
	m.start()
	s.becomes("east", "is there, without a status", func(m *v1alpha1.Member) bool { return m.Status.State == "" })
	<-m.Remove("east")
	s.eventually("the Member of a member that has left is gone", func() bool { return s.get("east") == nil })
}

func TestADeletedMemberComesBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	for range 3 {
		before := s.is("east", fleet.Ready)
		if err := s.client.Delete(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		s.becomes("east", "is another", func(m *v1alpha1.Member) bool { return m.UID != before.UID && m.Status.State == "Ready" })
	}
}

// TestTheWriterOfTheMembersRenewsItsLease, before that lapses.
func TestTheWriterOfTheMembersRenewsItsLease(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.newManager(s.Local.Config()).start()
	lease := func() coordinationv1.LeaseSpec {
		found := &coordinationv1.Lease{}
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "fleet-members"}, found); err != nil {
			t.Fatal(err)
		}
		return found.Spec
	}
	s.eventually("there is a Lease", s.hasLease)
	first := lease()
	s.eventually("it is renewed", func() bool { return lease().RenewTime.After(first.RenewTime.Time) })
	if lapses := first.RenewTime.Add(time.Duration(*first.LeaseDurationSeconds) * time.Second); lease().RenewTime.After(lapses) {
		t.Errorf("it has lapsed: it was renewed at %s, and then at %s", first.RenewTime, lease().RenewTime)
	}
}

// TestARestartWritesNothing where all is as before.
func TestARestartWritesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	var m *manager
	start := func() {
		m = s.newManager(s.Local.Config())
		m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
		m.start()
	}
	start()
	before := s.becomes("east", "has a version", func(m *v1alpha1.Member) bool { return m.Status.Version != "" })
	m.end()
	start()
	s.eventually("it is Ready", func() bool { status, _ := m.GetFleet().Status("east"); return status.State == fleet.Ready })
	m.set(fleet.Member{Name: "west", Err: errors.New("it does not parse")})
	s.is("west", fleet.Pending) // which is looked at later
	if after := s.get("east"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was %+v and is %+v", before.Status, after.Status)
	}
}

func TestRequestsWaitWhileAMemberIsPaused(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	one, two := s.Members[0], s.Members[1]
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "one", Config: one.Config()}, fleet.Member{Name: "two", Config: two.Config()})
	ns := map[*mctest.ControlPlane]string{one: one.CreateNamespace(t), two: two.CreateNamespace(t)}
	m.start()
	s.is("one", fleet.Ready)
	s.is("two", fleet.Ready)
	s.say("one", paused)
	got := s.becomes("one", "is paused", func(m *v1alpha1.Member) bool { return m.Status.Paused })
	if got.Status.Reason != fleet.ReasonPaused || got.Status.Message != "maintenance" || meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("a paused Member: %+v", got.Status)
	}
	e, err := m.GetFleet().Engagement("one")
	if err != nil {
		t.Fatal(err)
	}
	const load = 100
	for i := range load {
		for cp, namespace := range ns {
			s.configMap(cp, namespace, fmt.Sprintf("c-%d", i))
		}
	}
	s.eventually("the other member is reconciled", func() bool { n := m.total("two", ns[two]); return n == load })
	s.eventually("the requests wait in the queue", func() bool {
		for _, stats := range m.GetFleet().Queues("one") {
			if stats.Depth >= load {
				return true
			}
		}
		return false
	})
	if n := m.total("one", ns[one]); n > 0 {
		t.Errorf("%d objects of a paused member were reconciled", n)
	}
	s.say("one", free)
	s.eventually("what has waited is reconciled", func() bool { n := m.total("one", ns[one]); return n == load })
	if same, err := m.GetFleet().Engagement("one"); err != nil || same != e {
		t.Errorf("the member was engaged anew: %v", err)
	}
}

func TestADrainedMemberIsEngagedAgainWhenThatIsOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cp := s.Members[0]
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "one", Config: cp.Config()})
	ns := cp.CreateNamespace(t)
	m.start()
	s.is("one", fleet.Ready)
	s.say("one", drained)
	if got := s.is("one", fleet.Drained); !got.Status.Drained || got.Status.Message != "moving" {
		t.Errorf("a drained Member: %+v", got.Status)
	}
	for i := range 50 {
		s.configMap(cp, ns, fmt.Sprintf("c-%d", i))
	}
	if _, err := m.GetFleet().Engagement("one"); !errors.Is(err, fleet.ErrNotReady) {
		t.Errorf("it is engaged: %v", err)
	}
	s.say("one", free)
	s.eventually("all is reconciled", func() bool { n := m.total("one", ns); return n == 50 })
}

// TestPeopleLetAMemberLeaveWell: controllers take back what they have put there, also after a restart, and it comes back.
func TestPeopleLetAMemberLeaveWell(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cp := s.Members[0]
	ns := cp.CreateNamespace(t)
	s.configMap(cp, ns, "a")
	start := func() *manager {
		m := s.newManager(s.Local.Config())
		m.set(fleet.Member{Name: "one", Config: cp.Config()})
		m.start()
		return m
	}
	m := start()
	s.eventually("it is reconciled", func() bool { return m.total("one", ns) == 1 })
	s.say("one", leaving)
	for range 2 {
		got := s.becomes("one", "has left", func(m *v1alpha1.Member) bool { return m.Status.Drained && m.Status.Leaving })
		if got.Status.Message != "given up" || meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("a Member that has left: %+v", got.Status)
		}
		m.end()
		m = start()
		s.eventually("its object is reconciled as it leaves", func() bool { return m.tookBack("one", ns, "a") })
	}
	s.say("one", free)
	s.becomes("one", "is back", func(m *v1alpha1.Member) bool { return m.Status.State == "Ready" && !m.Status.Leaving })
	s.eventually("its object is reconciled as ever", func() bool { return !m.tookBack("one", ns, "a") })
}

// TestAPauseSurvivesARestart: nothing is reconciled between the start and the moment at which the pause is known.
func TestAPauseSurvivesARestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cp := s.Members[0]
	ns := cp.CreateNamespace(t)
	s.configMap(cp, ns, "a")
	s.create("one", "one", paused) // before there is such a member
	s.create("two", "two", drained)
	for range 3 {
		m := s.newManager(s.Local.Config())
		m.set(fleet.Member{Name: "one", Config: cp.Config()}, fleet.Member{Name: "two", Config: cp.Config()})
		m.start()
		s.eventually("the request waits", func() bool {
			for _, stats := range m.GetFleet().Queues("one") {
				if stats.Depth > 0 {
					return true
				}
			}
			return false
		})
		s.becomes("one", "is paused", func(m *v1alpha1.Member) bool { return m.Status.Paused && m.Status.State == "Ready" })
		s.is("two", fleet.Drained)
		if n := m.total("one", ns); n > 0 {
			t.Error("an object of a paused member was reconciled")
		}
		m.end()
	}
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "one", Config: cp.Config()})
	m.start()
	s.say("one", free)
	s.eventually("it is reconciled", func() bool { n := m.total("one", ns); return n == 1 })
	s.becomes("two", "says that the cluster is gone", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateGone })
	s.say("two", free)
	s.eventually("the Member of a cluster that is gone is deleted", func() bool { return s.get("two") == nil })
}

func TestMembersThatAreNobodysSaySoAndStay(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.create("unknown", "unknown", drained)
	s.create("other-name", "east", drained)
	s.create("west", "east", drained) // the name of another member's
	for i := range 200 {
		s.create(fmt.Sprintf("cluster-%d", i), fmt.Sprintf("cluster-%d", i), paused)
	}
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()}, fleet.Member{Name: "west", Config: s.Members[0].Config()})
	m.start()
	s.is("east", fleet.Ready)
	s.is("west", fleet.Ready)
	for object, reason := range map[string]string{"unknown": v1alpha1.ReasonUnknownCluster, "other-name": v1alpha1.ReasonWrongName, "cluster-199": v1alpha1.ReasonUnknownCluster} {
		s.eventually(object+" says what is wrong", func() bool {
			c := meta.FindStatusCondition(s.object(object).Status.Conditions, v1alpha1.ConditionAccepted)
			return c != nil && c.Status == "False" && c.Reason == reason
		})
	}
	s.eventually("each says what is wrong", func() bool {
		for _, m := range s.list() {
			if len(m.Status.Conditions) == 0 {
				return false
			}
		}
		return true
	})
	before := m.writes.Load()
	m.set(fleet.Member{Name: "north", Err: errors.New("it does not parse")})
	s.is("north", fleet.Pending)
	if more := m.writes.Load() - before; more > 2 {
		t.Errorf("%d writes for one new member", more)
	}
	if got := len(s.list()); got != 2+200+3 {
		t.Errorf("there are %d Members", got)
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	mgr, err := mcmanager.New(cp.Config(), nil, mcmanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Setup(mgr, members.Options{Namespace: "default"}); err == nil || !strings.Contains(err.Error(), "install the CRD") {
		t.Errorf("without the kind: %v", err)
	}
}
