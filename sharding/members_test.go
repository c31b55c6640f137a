package sharding

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// seated returns a replica that is in a table without an API server, and the table, in which it owns the even buckets.
func seated(tb testing.TB, c clock) (*Replica, *protocol.Table) {
	tb.Helper()
	r, err := newReplica(Options{ID: "test", Namespace: "test", Name: "a", Buckets: 8, Logger: testr.NewWithInterface(tb, testr.Options{})}, c)
	if err != nil {
		tb.Fatal(err)
	}
	r.hub = &hub{}
	s := r.newSession()
	s.sentAt[1] = c.now()
	s.worked(1)
	r.session = s
	table := protocol.New(8, 1)
	for _, name := range []string{s.name, "b-12345678"} {
		if err := table.Join(protocol.Member{Session: name}); err != nil {
			tb.Fatal(err)
		}
	}
	for b := range table.Owner {
		if err := table.Claim(b, table.Sessions[b%2].Session); err != nil {
			tb.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeTableLocked(nil, "", table)
	return r, table
}

// keyIn returns a key whose bucket is even, or odd.
func keyIn(odd int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key", i); protocol.Bucket(key, 8)%2 == odd {
			return key
		}
	}
}

func keyed(key string) map[string]string { return map[string]string{LabelKey: key} }

func TestAMemberOfTheSameKeyHasTheSameOwner(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	for i := range 20 {
		name := fleet.ClusterName(fmt.Sprint("m", i))
		if owner := r.Own(name, keyed(keyIn(0))); owner.Tenure == nil || owner.Replica != "a" {
			t.Errorf("%s is not owned: %+v", name, owner)
		}
		if owner := r.Own(name+"x", keyed(keyIn(1))); owner.Tenure != nil || owner.Replica != "b" {
			t.Errorf("%sx is owned by %+v, want b", name, owner)
		}
	}
}

func TestATenureIsTheSameUntilItIsReleased(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	labels := keyed(keyIn(0))
	first := r.Own("m", labels).Tenure
	if again := r.Own("m", labels).Tenure; again != first {
		t.Error("a second tenure beside the first")
	}
	b := protocol.Bucket(keyIn(0), 8)
	moving := table.Next()
	if err := moving.Move(b, "b-12345678"); err != nil {
		t.Fatal(err)
	}
	r.take(moving)
	if owner := r.Own("m", labels); owner.Tenure != nil || owner.Why != "it moves to b" {
		t.Errorf("a member that moves is owned: %+v", owner)
	}
	if first.Over() == nil || first.Remaining() > 0 {
		t.Error("the tenure is not over")
	}
	theirs := moving.Next()
	if _, err := theirs.Acknowledge(b, r.session.name); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Move(b, r.session.name); err != nil {
		t.Fatal(err)
	}
	other, _ := seated(t, systemClock{time.Now()})
	other.opts.Name = "c"
	other.take(theirs)
	if owner := other.Own("m", labels); owner.Tenure != nil || owner.Replica != "b" || owner.Why != "" {
		t.Errorf("a member that moves from another replica is owned: %+v", owner)
	}
	kept := moving.Next()
	if err := kept.Cancel(b); err != nil {
		t.Fatal(err)
	}
	r.take(kept)
	if owner := r.Own("m", labels); owner.Tenure != nil || owner.Replica != "a" || owner.Why == "" {
		t.Errorf("a member whose last tenure was not released is owned: %+v", owner)
	}
	if first.Over() == nil || first.Remaining() > 0 {
		t.Error("a tenure that was over is not any more")
	}
	first.Release()
	first.Release() // does nothing
	second := r.Own("m", labels).Tenure
	if second == nil || second == first || second.Epoch() != first.Epoch() {
		t.Errorf("the member is owned again as %v after %v", second, first)
	}
	if r.tenures != 1 || r.buckets[b].tenures != 1 {
		t.Errorf("%d tenures are counted, and %d in the bucket, want 1", r.tenures, r.buckets[b].tenures)
	}
}

// Between two looks at the table, another replica has had the bucket.
func TestATenureEndsThoughItsBucketIsBack(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	labels, b := keyed(keyIn(0)), protocol.Bucket(keyIn(0), 8)
	tenure := r.Own("m", labels).Tenure
	back := table.Next()
	for _, to := range []string{"b-12345678", r.session.name} {
		from := back.Owner[b]
		if err := back.Move(b, to); err != nil {
			t.Fatal(err)
		}
		if _, err := back.Acknowledge(b, from); err != nil {
			t.Fatal(err)
		}
	}
	r.take(back)
	if tenure.Over() == nil || tenure.Remaining() > 0 {
		t.Error("the tenure goes on")
	}
	tenure.Release()
	if again := r.Own("m", labels).Tenure; again == nil || again.Epoch() != tenure.Epoch()+2 {
		t.Errorf("the member is owned again as %v, want with an epoch that is greater by two", again)
	}
}

func (r *Replica) take(t *protocol.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeTableLocked(nil, "", t)
}

func TestAMemberWhoseKeyChangesWaitsForItsOwnerBefore(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	if owner := r.Own("m", keyed(keyIn(1))); owner.Replica != "b" {
		t.Fatalf("owned by %+v", owner)
	}
	r.Own("m", keyed(keyIn(0)))
	if owner := r.Own("m", keyed(keyIn(0))); owner.Tenure != nil || owner.Why == "" {
		t.Errorf("a member that came from another bucket is owned at once: %+v", owner)
	}
	if r.untilNews() > r.times.lease {
		t.Error("the fleet is not told when it may ask again")
	}
	c.pass(r.times.lease, r.times.lease)
	r.session.sentAt[2] = c.now()
	r.session.worked(2)
	if !r.isNews() {
		t.Error("the fleet is not told to ask again")
	}
	tenure := r.Own("m", keyed(keyIn(0))).Tenure
	if tenure == nil {
		t.Fatal("the member is not owned after the lease duration")
	}
	if tenure.Covers(keyed(keyIn(1))) || tenure.Covers(map[string]string{LabelKey: keyIn(0), LabelPool: "other"}) || !tenure.Covers(keyed(keyIn(0))) {
		t.Error("a tenure covers other labels than its own")
	}
	tenure.Release()
	if owner := r.Own("m", keyed(keyIn(1))); owner.Tenure != nil || owner.Replica != "b" {
		t.Errorf("owned by %+v, want b", owner)
	}
}

// That its weight changes meanwhile is no reason to wait for less, or for more.
func TestAMemberThatWaitsIsAwaitedWhateverItsWeight(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	heavy := map[string]string{LabelKey: keyIn(0), LabelWeight: "7"}
	r.Own("m", keyed(keyIn(1)))
	r.Own("m", keyed(keyIn(0)))
	c.pass(r.times.lease/2, r.times.lease/2)
	if owner := r.Own("m", heavy); owner.Tenure != nil {
		t.Error("a member that came from another bucket is owned at once as its weight changes")
	}
	c.pass(r.times.lease/2, r.times.lease/2)
	r.session.sentAt[2] = c.now()
	r.session.worked(2)
	if owner := r.Own("m", heavy); owner.Tenure == nil {
		t.Errorf("the wait has begun anew as the weight has changed: %+v", owner)
	}
}

// No other replica works on either bucket.
func TestAMemberThatStaysWithItsOwnerDoesNotWait(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	var keys []string
	for i := 0; len(keys) < 2; i++ {
		if key := fmt.Sprint("key", i); protocol.Bucket(key, 8)%2 == 0 && (keys == nil || protocol.Bucket(key, 8) != protocol.Bucket(keys[0], 8)) {
			keys = append(keys, key)
		}
	}
	r.Own("m", keyed(keys[0])).Tenure.Release()
	if owner := r.Own("m", keyed(keys[1])); owner.Tenure == nil {
		t.Errorf("the member is not owned: %+v", owner)
	}
}

// Nothing could be sent to it. It is taken when the session works again.
func TestASuspendedReplicaTakesNoMember(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	c.pass(r.times.valid, r.times.valid)
	if owner := r.Own("m", keyed(keyIn(0))); owner.Tenure != nil || owner.Replica != "a" || owner.Why == "" {
		t.Errorf("owned by %+v", owner)
	}
	r.session.sentAt[2] = c.now()
	r.session.worked(2)
	if owner := r.Own("m", keyed(keyIn(0))); owner.Tenure == nil {
		t.Errorf("owned by %+v, want this replica", owner)
	}
}

// A pod of a StatefulSet that was killed is back under its name: its status does not say that it works on what it had.
func TestWhatAReplicaHadBeforeItBeganAnewIsToldApart(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	killed := table.Next()
	if err := killed.Join(protocol.Member{Session: "a-87654321"}); err != nil {
		t.Fatal(err)
	}
	for b := range killed.Owner {
		killed.Owner[b] = "a-87654321"
	}
	r.take(killed)
	if owner := r.Own("m", nil); owner.Tenure != nil || owner.Replica != "a" || !strings.Contains(owner.Why, "before it began anew") {
		t.Errorf("%+v", owner)
	}
}

func TestAMemberOfAnotherPoolIsNotOwned(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	if owner := r.Own("m", map[string]string{LabelPool: "big"}); owner.Tenure != nil || owner.Replica != "" || owner.Why == "" {
		t.Errorf("owned by %+v", owner)
	}
	if without := r.Status().MembersWithoutOwner; without != 1 {
		t.Errorf("%d members are without an owner, want the one whose pool has no replica", without)
	}
	big := r.newSession()
	big.described.Annotations[annotationPool] = "big"
	big.number = 1
	lease := big.next()
	r.mu.Lock()
	r.sawLocked(lease)
	r.mu.Unlock()
	if without := r.Status().MembersWithoutOwner; without != 0 {
		t.Errorf("%d members are without an owner, want none: that is for the other pool to say", without)
	}
	r.mu.Lock()
	r.goneLocked(lease.Name)
	r.mu.Unlock()
	if without := r.Status().MembersWithoutOwner; without != 1 {
		t.Errorf("%d members are without an owner, want the one whose pool has no replica any more", without)
	}
	r.Own("m", map[string]string{LabelPool: "bigger"})
	r.Forget("m")
	if without := r.Status().MembersWithoutOwner; without != 0 || len(r.pools) > 0 {
		t.Errorf("%d members are without an owner, want none: there are none; pools: %v", without, r.pools)
	}
}

// A replica of another pool that is silent is no replica of that pool.
func TestAMemberOfAPoolWhoseReplicasAreSilentHasNoOwner(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	r.Own("m", map[string]string{LabelPool: "big"})
	big := r.newSession()
	big.described.Annotations[annotationPool] = "big"
	big.number = 1
	see := func() {
		if err := (view{r}).Update(big.next()); err != nil {
			t.Fatal(err)
		}
	}
	see()
	c.pass(r.times.lease-1, r.times.lease-1)
	if without := r.Status().MembersWithoutOwner; without != 0 {
		t.Errorf("%d members are without an owner before the replica was silent for long", without)
	}
	c.pass(1, 1)
	see() // as a list shows it again
	if without := r.Status().MembersWithoutOwner; without != 1 {
		t.Errorf("%d members are without an owner, want the one whose pool is silent", without)
	}
	if err := (view{r}).Replace(nil, ""); err != nil || len(r.elsewhere) > 0 {
		t.Errorf("sessions of other pools are known that are gone: %v, %v", r.elsewhere, err)
	}
}

func TestWeightsAreCountedByBucket(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	b := protocol.Bucket(keyIn(1), 8)
	for weight, want := range map[string]int64{"7": 7, "1000": 1000, "1001": 1, "0": 1, "-3": 1, "x": 1, "": 1} {
		r.Own("m", map[string]string{LabelKey: keyIn(1), LabelWeight: weight})
		if got := r.buckets[b].weight; got != want {
			t.Errorf("weight %q counts as %d, want %d", weight, got, want)
		}
	}
	r.Own("n", keyed(keyIn(1)))
	r.Forget("m")
	r.Forget("m")
	if got := r.buckets[b]; got.weight != 1 || got.members != 1 {
		t.Errorf("%d members of weight %d are left, want 1 of 1", got.members, got.weight)
	}
}

func TestAMemberThatIsForgottenIsDrainedToo(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	b := protocol.Bucket(keyIn(0), 8)
	tenure := r.Own("m", keyed(keyIn(0))).Tenure
	r.Forget("m")
	if r.buckets[b].members != 0 || r.buckets[b].tenures != 1 {
		t.Errorf("%+v, want no member and a tenure", r.buckets[b])
	}
	if owner := r.Own("m", keyed(keyIn(0))); owner.Tenure != tenure {
		t.Errorf("%+v, want the tenure that was not released", owner)
	}
	r.Forget("m")
	tenure.Release()
	if len(r.members) != 0 || r.buckets[b].tenures != 0 {
		t.Errorf("%d members are known, and %d tenures", len(r.members), r.buckets[b].tenures)
	}
}

func TestAMemberThatAnotherReplicaOwnsCostsNoAllocation(t *testing.T) {
	r, _ := seated(t, systemClock{time.Now()})
	labels := keyed(keyIn(1))
	r.Own("m", labels)
	if n := testing.AllocsPerRun(100, func() { r.Own("m", labels) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOwn(b *testing.B) {
	r, _ := seated(b, systemClock{time.Now()})
	names := make([]fleet.ClusterName, 20000)
	for i := range names {
		names[i] = fleet.ClusterName(fmt.Sprint("member-", i))
		r.Own(names[i], nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range names {
			r.Own(name, nil)
		}
	}
}

func TestMembersMoveWithTheirKeysAndPools(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	big := s.start("big", func(o *Options) { o.Pool = "big" })
	s.becomesShared(a, b)
	s.label("m001", keyed("together"))
	s.label("m002", keyed("together"))
	s.label("m003", map[string]string{LabelPool: "big"})
	stage.Eventually(t, "the members are where their labels say", func() bool {
		owners := s.owners()
		return len(owners) == 20 && owners["m001"] == owners["m002"] && owners["m003"] == "big"
	})
	s.label("m003", nil)
	stage.Eventually(t, "the member is back", func() bool {
		owners := s.owners()
		return len(owners) == 20 && owners["m003"] != "big" && len(big.holds()) == 0
	})
}

// Nothing that runs for members ends: they stay where they are after a while.
func TestAHandOverThatTakesTooLongIsCancelled(t *testing.T) {
	t.Parallel()
	s := newScene(t, 40)
	patience := func(o *Options) { o.HandOverTimeout = time.Second }
	a := s.start("a", patience)
	s.becomesShared(a)
	for name := range s.names() {
		a.worker.hang(name)
	}
	b := s.start("b", patience)
	stage.Eventually(t, "there was a move", func() bool { return len(a.replica.Status().Moves) > 0 })
	s.becomesToldOf("HandOverTooLong")
	if n := len(b.holds()); n > 0 {
		t.Errorf("the new replica has %d members, of which none was given up", n)
	}
	a.worker.revive()
	s.becomesShared(a, b)
}

func TestADrainTimeoutGivesUpWhatStillRuns(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	s.ledger.impatient = true
	patience := func(o *Options) { o.DrainTimeout = time.Millisecond }
	a := s.start("a", patience)
	s.becomesShared(a)
	for name := range s.names() {
		a.worker.hang(name)
	}
	b := s.start("b")
	stage.Eventually(t, "the new replica has members", func() bool { return len(b.holds()) > 0 })
	over := func(tenure fleet.Tenure) bool { return tenure.Over() != nil && tenure.Remaining() == 0 }
	if !slices.ContainsFunc(a.tenures(), over) {
		t.Error("no tenure is left that was not released")
	}
	s.becomesToldOf("ReplicaJoined")
}

// Requests for the local cluster have an owner too. It is no member, and weighs nothing.
func TestTheLocalClusterHasAnOwnerAndNoWeight(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	b := protocol.Bucket("", 8)
	owner := r.Own("", nil)
	if (owner.Tenure != nil) != table.Holds(r.session.name, b) {
		t.Errorf("owned by %+v", owner)
	}
	if r.buckets[b].members != 0 || r.buckets[b].weight != 0 {
		t.Errorf("%+v", r.buckets[b])
	}
}

// It waits no longer than its options say for what does not end.
func TestAReplicaEndsAlthoughSomethingRuns(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*Options){
		"DrainTimeout":    func(o *Options) { o.DrainTimeout = time.Millisecond },
		"HandOverTimeout": func(o *Options) { o.HandOverTimeout = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 20)
			s.ledger.impatient = true
			a, b := s.start("a", limit), s.start("b")
			s.becomesShared(a, b)
			for name := range s.names() {
				a.worker.hang(name)
			}
			a.cancel()
			stage.Eventually(t, "the other owns all members", func() bool { return len(b.holds()) == 20 })
			stage.Eventually(t, "the replica has ended", func() bool {
				select {
				case <-a.ended:
					return true
				default:
					return false
				}
			})
		})
	}
}

// Replicas with another lease duration share members too, as while that is changed: each is given the longer of both.
func TestASessionIsGivenTheTimeThatItAskedFor(t *testing.T) {
	t.Parallel()
	for said, want := range map[time.Duration]time.Duration{
		time.Second: 15 * time.Second, 15 * time.Second: 15 * time.Second, time.Minute: time.Minute, 1000 * time.Hour: longestLease,
	} {
		r, err := newReplica(Options{ID: "test", Namespace: "test", Name: "a", Logger: testr.New(t)}, systemClock{time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		r.hub = &hub{}
		lease := r.newSession().described
		*lease.Spec.LeaseDurationSeconds = int32(said / time.Second)
		p := &peer{lease: lease}
		if got := p.silentAfter(15 * time.Second); got != want {
			t.Errorf("a session that says %s may be silent for %s, want %s", said, got, want)
		}
	}
}

// TestALocalClusterThatNoReplicaOwnsIsCounted: all replicas are of pools, or the one that is not has died.
func TestALocalClusterThatNoReplicaOwnsIsCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0)
	s.label("", nil)
	inPool := func(o *Options) { o.Pool = "p" }
	a := s.start("a", inPool)
	counts := func(want int) {
		t.Helper()
		stage.Eventually(t, fmt.Sprintf("%d are without an owner", want), func() bool {
			status := a.replica.Status()
			return status.MembersWithoutOwner == want && len(status.Replicas) == 1 && status.Replicas[0].Members == 0
		})
	}
	counts(1)
	b := s.start("b")
	stage.Eventually(t, "the other replica owns it", func() bool { return slices.Contains(b.holds(), "") })
	counts(0)
	if status := b.replica.Status(); status.MembersWithoutOwner != 0 || status.Replicas[0].Members != 0 {
		t.Errorf("the replica that owns it says %+v", status)
	}
	b.kill()
	counts(1)
}
