package sharding

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// briskly is a pace for tests.
func briskly() protocol.Pace {
	return protocol.Pace{
		Sample: 50 * time.Millisecond, WarmUp: 50 * time.Millisecond, Enough: 200 * time.Millisecond, Memory: time.Minute, Say: 100 * time.Millisecond,
	}
}

// measured measures costs, in a table in which 40 buckets may move in a minute.
func measured(o *Options) { o.Measure, o.Buckets = true, 4096 }

// apart makes a scene of members of which no two are in one bucket.
func apart(t *testing.T, members int) *scene {
	t.Helper()
	s := newScene(t, 0)
	s.pace, s.lease = briskly(), 3*leaseOfTests
	taken := map[int]bool{}
	for i := 0; len(s.members) < members; i++ {
		name := fmt.Sprintf("m%03d", i)
		if b := protocol.Bucket(name, 4096); !taken[b] {
			taken[b] = true
			s.members[fleet.ClusterName(name)] = nil
		}
	}
	return s
}

// one returns what a replica knows of another one, or of itself.
func (a *actor) one(name string) ReplicaStatus {
	for _, one := range a.replica.Status().Replicas {
		if one.Replica == name {
			return one
		}
	}
	return ReplicaStatus{}
}

func TestAMemberThatCostsMuchEndsAloneOnItsReplica(t *testing.T) {
	t.Parallel()
	s := apart(t, 30)
	a, b, c := s.start("a", measured), s.start("b", measured), s.start("c", measured)
	s.becomesShared(a, b, c)
	var heavy fleet.ClusterName
	for name, owner := range s.owners() {
		if owner == "b" {
			heavy = name
		}
	}
	s.charge(heavy, 5*time.Millisecond)
	stage.Eventually(t, "the member that costs much is alone, and the others share the rest", func() bool {
		members := map[string]int{}
		owners := s.owners()
		for _, owner := range owners {
			members[owner]++
		}
		return len(owners) == 30 && members[owners[heavy]] == 1 && len(members) == 3 && slices.Max(slices.Collect(maps.Values(members))) <= 18
	})
	for _, replica := range []*actor{a, b, c} {
		stage.Eventually(t, "each replica shows the weights as they are used", func() bool {
			owner := replica.one(s.owners()[heavy])
			return owner.Weight > 12 && owner.Members == 1 && owner.Measured > 0
		})
	}
}

func TestALabelGoesBeforeWhatIsMeasured(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	r.costs = protocol.NewCosts(briskly())
	labels := keyed(keyIn(0))
	b := protocol.Bucket(keyIn(0), 8)
	owner := r.Own("m", labels)
	if again := r.Own("m", labels); owner.Spent == nil || again.Spent == nil || again.Tenure != owner.Tenure {
		t.Fatal("nothing is told what reconciles cost")
	}
	owner.Spent(time.Second)
	if term, spent := r.spentLocked(b); term != r.buckets[b].term || spent != time.Second {
		t.Errorf("%v were spent in %v", spent, term)
	}
	labels[LabelWeight] = "1"
	r.Own("m", labels)
	owner.Spent(time.Second)
	if _, spent := r.spentLocked(b); spent != 0 || r.buckets[b].measured != 0 || r.buckets[b].weight != 1 {
		t.Errorf("of a member with a label, %v count, and it is one of %d", spent, r.buckets[b].measured)
	}
	delete(labels, LabelWeight)
	r.Own("m", labels)
	owner.Spent(time.Second)
	if _, spent := r.spentLocked(b); spent != time.Second || r.buckets[b].measured != 1 {
		t.Errorf("without the label, %v count", spent)
	}
}

func TestWhatIsNotMeasuredCostsNothing(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	if owner := r.Own("m", keyed(keyIn(0))); owner.Tenure == nil || owner.Spent != nil {
		t.Errorf("%+v, want an owner that is told nothing", owner)
	}
	if again := r.measure(r.session); again < r.times.renew || r.session.costs.Load() != nil {
		t.Errorf("it is looked at again within %s", again)
	}
}

// What replicas say of costs that nobody can make anything of is shown, and changes nothing.
func TestAbsurdCostsAreShownAndIgnored(t *testing.T) {
	t.Parallel()
	s := apart(t, 30)
	log := &lines{}
	a := s.start("a", measured, log.logger())
	s.becomesShared(a)
	b := s.start("b", func(o *Options) { o.Buckets = 4096 })
	s.becomesShared(a, b)
	stage.Eventually(t, "the buckets are shared", func() bool {
		n := a.one("b").Buckets
		return len(a.replica.Status().Moves) == 0 && n > 1800
	})
	generation := a.replica.Status().Generation
	says := func(text string) {
		b.replica.mu.Lock()
		defer b.replica.mu.Unlock()
		b.replica.session.costs.Store(&text)
	}
	for i, text := range []string{"NaN", "1:1e300", "-1", "1:" + string(slices.Repeat([]byte("A"), 200<<10)), "{}"} {
		says(text)
		stage.Eventually(t, "it is shown that nothing can be made of it", func() bool { return a.one("b").CostProblem != "" })
		stage.Eventually(t, "it is logged once", func() bool { return log.with("cannot be used") == i+1 })
		says(protocol.EncodeCosts(nil))
		stage.Eventually(t, "it is shown no more", func() bool { return a.one("b").CostProblem == "" })
	}
	table := a.replica.tableNow()
	all := make([]protocol.Cost, 0, len(table.Owner))
	for bucket, owner := range table.Owner {
		cost := protocol.Cost{Bucket: bucket, Level: protocol.MaxLevel}
		if owner == b.session() {
			cost.Level = 0
		}
		all = append(all, cost)
	}
	says(protocol.EncodeCosts(all))
	stage.Eventually(t, "what it says of its own buckets counts, and of others not", func() bool {
		one := a.one("b")
		return one.Measured == one.Buckets && one.StrangeCosts == 4096-one.Buckets
	})
	if now := a.replica.Status().Generation; now != generation {
		t.Errorf("the table was written %d times", now-generation)
	}
	if owners := s.owners(); len(owners) != 30 {
		t.Errorf("%d members have an owner", len(owners))
	}
}

// The annotation goes with renewals that are sent anyway.
func TestWhatIsSaidOfCostsTakesNoWriteOfItsOwn(t *testing.T) {
	t.Parallel()
	s := apart(t, 30)
	a := s.start("a", measured)
	s.becomesShared(a)
	said := map[string]bool{}
	var before, begun, number int64
	for n := range 6 {
		for name := range s.names() {
			s.charge(name, time.Duration(n*n)*time.Millisecond)
		}
		stage.Eventually(t, "something else is said than before", func() bool {
			for _, lease := range s.leases() {
				if text := lease.Annotations[annotationCosts]; text != "" && !said[text] {
					said[text] = true
					number = numberOf(&lease)
					return true
				}
			}
			return false
		})
		if n == 0 {
			before, begun = int64(a.faults.written()), number
		}
	}
	if written := int64(a.faults.written()) - before; written > number-begun+1 {
		t.Errorf("%d writes for %d renewals", written, number-begun)
	}
}

func TestThatNothingCanBeProvedSaysNothingOfCosts(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	r.costs = protocol.NewCosts(briskly())
	owner := r.Own("m", keyed(keyIn(0)))
	b := protocol.Bucket(keyIn(0), 8)
	lapse := func(seconds int, spent time.Duration, valid bool) {
		for range seconds {
			c.pass(time.Second, time.Second)
			if valid {
				r.session.number++
				r.session.sentAt[r.session.number] = c.now()
				r.session.worked(r.session.number)
			}
			owner.Spent(spent)
			r.measure(r.session)
			r.session.number++
			r.takeSaid()
		}
	}
	lapse(60, 100*time.Millisecond, true)
	was := r.costs.Used(b)
	if was != protocol.LevelOf(0.1) {
		t.Errorf("level %d, want %d", was, protocol.LevelOf(0.1))
	}
	lapse(60, 0, false)
	if now := r.costs.Used(b); now != was {
		t.Errorf("after a minute without a proof of ownership, the level is %d, want %d as before", now, was)
	}
}

// takeSaid shows the replica its own Lease, as a watch does.
func (r *Replica) takeSaid() {
	r.mu.Lock()
	defer r.mu.Unlock()
	lease := r.session.next()
	lease.ResourceVersion = lease.Annotations[annotationRenewal]
	r.sawLocked(lease)
}

func TestBucketsWeighByLabelsAndByCostsOfMembersThatAreThere(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	r.costs = protocol.NewCosts(briskly())
	texts := map[string]string{}
	for i, s := range table.Sessions {
		var all []protocol.Cost
		for b := i; b < 8; b += 2 {
			all = append(all, protocol.Cost{Bucket: b, Level: protocol.LevelOf(1)})
		}
		texts[s.Session] = protocol.EncodeCosts(all)
	}
	r.costs.Hear(time.Minute, table, texts)
	r.costs.Heed(time.Minute)
	local := protocol.Bucket("", 8)
	in := func(b int) map[string]string {
		for i := 0; ; i++ {
			if key := fmt.Sprint("key", i); protocol.Bucket(key, 8) == b {
				return keyed(key)
			}
		}
	}
	labelled := in((local + 1) % 8)
	labelled[LabelWeight] = "7"
	r.Own("labelled", labelled)
	r.Own("measured", in((local+2)%8))
	r.Own("gone", in((local+3)%8))
	r.Forget("gone")
	weights, unit := r.weightsLocked()
	if unit != 1000 || weights[(local+1)%8] != 7000 || weights[(local+2)%8] != 1000 || weights[(local+3)%8] != 0 || weights[local] != 0 {
		t.Errorf("weights are %v", weights)
	}
	r.Own("", nil)
	if weights, _ := r.weightsLocked(); weights[local] != 250 || weights[(local+2)%8] != 750 {
		t.Errorf("with a local cluster that costs as much, weights are %v", weights)
	}
}

func TestOnlyTheReplicaThatPlansBalancesWhatIsMeasured(t *testing.T) {
	t.Parallel()
	r, table := seated(t, systemClock{time.Now()})
	first := r.session.next()
	turn := &turn{Replica: r, l: &progress{}, now: r.clock.now(), was: table, peers: map[string]*peer{r.session.name: {lease: first, heard: r.clock.now()}}}
	replicas := []protocol.Replica{{Session: r.session.name}}
	want := func(what string, rank, most int) {
		t.Helper()
		if turn.rank = rank; turn.most(replicas) != most {
			t.Errorf("%s, the replica of rank %d may move %d, want %d", what, rank, turn.most(replicas), most)
		}
	}
	want("where nothing is measured", 0, 0)
	want("where nothing is measured", 1, 0)
	first.Annotations[annotationCosts] = protocol.EncodeCosts(nil)
	want("where the first measures", 1, -1)
	delete(first.Annotations, annotationCosts)
	r.costs = protocol.NewCosts(briskly())
	want("which measures", 1, -1)
	want("which measures", 0, 0)
}
