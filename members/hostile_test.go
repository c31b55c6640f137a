package members_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// forgeStatus changes the status of a Member, as somebody who may.
func (s *stage) forgeStatus(cluster string, change func(*v1alpha1.Status)) {
	s.t.Helper()
	m := s.get(cluster)
	patch := client.MergeFrom(m.DeepCopy())
	change(&m.Status)
	if err := s.client.Status().Patch(s.t.Context(), m, patch, client.FieldOwner("stranger")); err != nil {
		s.t.Fatal(err)
	}
}

// TestAStatusThatStrangersHaveChangedBecomesRightAgain, and is not written for ever.
func TestAStatusThatStrangersHaveChangedBecomesRightAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	right := s.becomes("east", "has a version", func(m *v1alpha1.Member) bool { return m.Status.Version != "" }).Status
	for name, forge := range map[string]func(*v1alpha1.Status){
		"another state":   func(s *v1alpha1.Status) { s.State = "Broken" },
		"a state no more": func(s *v1alpha1.Status) { s.State = "" },
		"a message":       func(s *v1alpha1.Status) { s.Message = "call 555" },
		"a reason":        func(s *v1alpha1.Status) { s.Reason = "Forged" },
		"paused":          func(s *v1alpha1.Status) { s.Paused, s.Leaving, s.Drained = true, true, true },
		"an owner":        func(s *v1alpha1.Status) { s.Replica, s.Epoch = "nobody", 7 },
		"an expiry":       func(s *v1alpha1.Status) { s.Expires = metav1.NewTime(time.Unix(1, 0)) },
		"the future":      func(s *v1alpha1.Status) { s.Since = metav1.NewTime(right.Since.Add(1000 * time.Hour)) },
		"another Lease":   func(s *v1alpha1.Status) { s.Lease = &v1alpha1.Lease{Namespace: "a", Name: "b"} },
		"no Lease":        func(s *v1alpha1.Status) { s.Lease = nil },
		"labels":          func(s *v1alpha1.Status) { s.Labels = map[string]string{"a": "b"} },
		"duplicates":      func(s *v1alpha1.Status) { s.Duplicates = []string{"west"} },
		"kinds":           func(s *v1alpha1.Status) { s.NotSynced = []v1alpha1.NotSynced{{Kind: "Pod", Reason: "Forged"}} },
		"a condition": func(s *v1alpha1.Status) {
			s.Conditions = append(s.Conditions, metav1.Condition{
				Type: "Forged", Status: metav1.ConditionTrue, Reason: "Forged", LastTransitionTime: metav1.Now(),
			})
		},
		"no conditions":  func(s *v1alpha1.Status) { s.Conditions = nil },
		"all of it gone": func(s *v1alpha1.Status) { *s = v1alpha1.Status{} },
	} {
		s.forgeStatus("east", forge)
		s.becomes("east", "is right after "+name, func(m *v1alpha1.Member) bool {
			got := m.Status
			return got.State == right.State && got.Message == "" && got.Reason == "" && !got.Paused && !got.Leaving && !got.Drained && got.Replica == "" &&
				got.Epoch == 0 && got.Expires.IsZero() && !got.Since.After(right.Since.Time) && !got.Since.IsZero() && got.Lease != nil && *got.Lease == *right.Lease &&
				len(got.Labels) == 0 &&
				len(got.Duplicates) == 0 && len(got.NotSynced) == 0 && len(got.Conditions) == len(right.Conditions)
		})
	}
	before, begin := m.writes.Load(), time.Now()
	for time.Since(begin) < 7*time.Second {
		s.get("east") // which takes its time
	}
	if n := m.writes.Load() - before; n > 1 { // the last one may be under way
		t.Errorf("%d writes while nothing changed", n)
	}
}

// TestTextsAndTimesThatStrangersHaveForgedBecomeRightAgain, though they are not compared with what the fleet says now, which changes often.
func TestTextsAndTimesThatStrangersHaveForgedBecomeRightAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Err: broken{"Broken", "it does not parse"}})
	m.start()
	right := s.becomes("east", "says why", func(m *v1alpha1.Member) bool { return m.Status.Reason == "Broken" }).Status
	m.set(fleet.Member{Name: "east", Err: broken{"Broken", "it still does not parse"}}) // which is not written until something else changes
	past := metav1.NewTime(right.Since.Add(-1000 * time.Hour))
	for name, forge := range map[string]func(*v1alpha1.Status){
		"a message":             func(s *v1alpha1.Status) { s.Message = "call 555" },
		"the past":              func(s *v1alpha1.Status) { s.Since = past },
		"a condition's message": func(s *v1alpha1.Status) { s.Conditions[0].Message = "call 555" },
		"a condition's time":    func(s *v1alpha1.Status) { s.Conditions[0].LastTransitionTime = past },
		"all of it":             func(s *v1alpha1.Status) { s.State, s.Message, s.Since = "Ready", "call 555", past },
	} {
		s.forgeStatus("east", forge)
		s.becomes("east", "is right after "+name, func(m *v1alpha1.Member) bool {
			got := m.Status
			return got.State == right.State && strings.HasSuffix(got.Message, "does not parse") && !got.Since.Before(&right.Since) &&
				strings.HasSuffix(got.Conditions[0].Message, "does not parse") && !got.Conditions[0].LastTransitionTime.Before(&right.Conditions[0].LastTransitionTime)
		})
	}
	s.create("nobody", "nobody")
	s.becomes("nobody", "is looked at", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateUnknown })
	before := m.writes.Load()
	m.set(fleet.Member{Name: "east", Err: broken{"Broken", "it does not parse again"}})
	s.forgeStatus("nobody", func(s *v1alpha1.Status) { s.State = "" })
	s.becomes("nobody", "is looked at again", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateUnknown })
	if n := m.writes.Load() - before; n != 1 {
		t.Errorf("%d writes, want that of the Member that was forged", n)
	}
}

// TestAMemberThatIsDeletedWhileDrainedIsEngagedAgainOnceItIsGone: until then it is drained.
func TestAMemberThatIsDeletedWhileDrainedIsEngagedAgainOnceItIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	s.is("east", fleet.Ready)
	s.say("east", drained)
	before := s.is("east", fleet.Drained)
	before.Finalizers = []string{"example.com/wait"}
	for _, do := range []func() error{
		func() error { return s.client.Update(t.Context(), before) },
		func() error { return s.client.Delete(t.Context(), before) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	s.say("east", func(s *v1alpha1.Spec) { s.Reason = "still moving" })
	going := s.becomes("east", "still says why", func(m *v1alpha1.Member) bool { return m.Status.Message == "still moving" })
	if going.Status.State != string(fleet.Drained) || going.DeletionTimestamp == nil {
		t.Errorf("a Member that is being deleted: %+v", going.Status)
	}
	patch := client.MergeFrom(going.DeepCopy())
	going.Finalizers = nil
	if err := s.client.Patch(t.Context(), going, patch); err != nil {
		t.Fatal(err)
	}
	after := s.is("east", fleet.Ready)
	if after.UID == before.UID || after.Spec.Drained || after.Status.Drained {
		t.Errorf("the Member that comes next: %+v %+v", after.Spec, after.Status)
	}
}

// TestWhatAProviderDescribesAtLengthIsShown, as far as there is room.
func TestWhatAProviderDescribesAtLengthIsShown(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	long := s.Members[0].Config()
	long.Host += "/" + strings.Repeat("x", 2000)
	labels := map[string]string{}
	for i := range 500 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", 4000)
	}
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config(), Labels: labels}, fleet.Member{Name: "west", Config: long})
	m.start()
	if west := s.becomes("west", "is shown", func(m *v1alpha1.Member) bool { return m.Status.State != "" }); !strings.HasPrefix(west.Status.Server, s.Members[0].Config().Host) {
		t.Errorf("it is at %q", west.Status.Server)
	}
	s.is("east", fleet.Ready)
}

// TestWhatStrangersWriteOnMembersTakesNoMemory: annotations alone may have as much as an object may be large. It runs by itself.
func TestWhatStrangersWriteOnMembersTakesNoMemory(t *testing.T) {
	const load, size = 200, 250_000
	s := newStage(t, 1)
	for i := range load {
		member := &v1alpha1.Member{Spec: v1alpha1.Spec{ClusterName: fmt.Sprintf("forged-%d", i)}}
		member.Namespace, member.Name = s.ns, member.Spec.ClusterName
		member.Annotations = map[string]string{"example.com/large": strings.Repeat("x", size)}
		if err := s.client.Create(t.Context(), member); err != nil {
			t.Fatal(err)
		}
	}
	inUse := func() int64 {
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		return int64(memory.HeapAlloc)
	}
	before := inUse()
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	s.is("east", fleet.Ready)
	if more := inUse() - before; more > load*size/2 {
		t.Errorf("%d MB for %d Members", more>>20, load)
	}
}

// TestAMemberThatIsDrainedAndGoesGetsNoNewMember in the place of one that was deleted: another replica may have done so, which was told first.
func TestAMemberThatIsDrainedAndGoesGetsNoNewMember(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	s.is("east", fleet.Ready)
	_, _, done, err := m.GetFleet().Controller("test").Begin(t.Context(), "east", work("a reconcile"))
	if err != nil {
		t.Fatal(err)
	}
	drained := m.Remove("east")
	if err := s.client.Delete(t.Context(), s.is("east", fleet.Draining)); err != nil {
		t.Fatal(err)
	}
	s.create("nobody", "nobody")
	for range 2 { // the second write comes a second later, and by then the Member would have had its turn too
		s.becomes("nobody", "is looked at after that", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateUnknown })
		s.forgeStatus("nobody", func(s *v1alpha1.Status) { s.State = "" })
	}
	s.becomes("nobody", "is looked at again", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateUnknown })
	if again := s.get("east"); again != nil {
		t.Errorf("there is a new Member: %+v", again.Status)
	}
	done(reconcile.Result{}, nil)
	<-drained
	if again := s.get("east"); again != nil {
		t.Errorf("there is a new Member once it is drained: %+v", again.Status)
	}
}

type work string

func (w work) String() string { return string(w) }
