package protocol

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var simulate = flag.Bool("simulate", false, "simulate days of fleets, and print the tables of docs/sharding.md")

// What a simulated day has, in steps of a second. Each member has one of ten weights.
const (
	day          = 24 * 3600
	memberChurn  = 0.2  // This part of the members leaves, and as many come.
	memberDrift  = 0.05 // This part gets another weight every ten minutes.
	podLife      = 5 * day
	podStart     = 20 // How long it takes until a pod runs, and up to half as long again.
	drainMean    = 2
	drainMost    = 30
	leaseTime    = 15
	renewEvery   = 3
	settleTime   = 5
	replanEvery  = 600
	leaseBytes   = 900  // Of a session's Lease in a watch, with its managed fields.
	conflictTime = 0.02 // Between the reading and the writing of a table, in which another's write leads to a conflict.
)

// pod is a replica, on its way in or out.
type pod struct {
	session  string
	revision string
	ready    int // When it joins.
	joined   bool
	draining bool
	dead     int // Since when, 0 if it lives.
}

// simulation is a day of a fleet.
type simulation struct {
	*share
	rand     *rand.Rand
	now      int
	member   []simulated
	members  []int // Per bucket.
	pods     []*pod
	want     int // The replicas that the Deployment is to have.
	revision int
	old      string      // The revision that a rolling update replaces.
	drained  map[int]int // When a bucket will be drained.
	lost     map[int]int // Since when nobody works on a bucket.
	replan   bool
	lastJoin int
	lastPlan int
	writers  int // In this second.
	size     int // Of the table, when it was last looked at.
	figures
}

type simulated struct {
	bucket int
	weight int64
}

// figures are what comes of it.
type figures struct {
	plans                                    []time.Duration
	renewals, writes, conflicts, leaseWrites int
	watchBytes, tableBytes                   int
	movedBy                                  map[Reason]int // Members.
	highest, lowest                          []float64      // Of the mean, each minute.
	longest                                  int            // Without an owner, in seconds.
	mostBytes, replicaSeconds, offMinutes    int
}

func newSimulation(t *testing.T, members, replicas, buckets int) *simulation {
	t.Helper()
	s := &simulation{
		share: shared(t, make([]int64, buckets)), rand: rand.New(rand.NewPCG(1, uint64(members*replicas))),
		members: make([]int, buckets), want: replicas, drained: map[int]int{}, lost: map[int]int{},
	}
	s.movedBy = map[Reason]int{}
	for range members {
		s.comes()
	}
	return s
}

func (s *simulation) comes() {
	m := simulated{s.rand.IntN(len(s.members)), 1 + s.rand.Int64N(10)}
	s.member = append(s.member, m)
	s.members[m.bucket]++
	s.in.Weight[m.bucket] += m.weight
}

func (s *simulation) goes(i int) {
	m := s.member[i]
	s.members[m.bucket]--
	s.in.Weight[m.bucket] -= m.weight
	s.member[i] = s.member[len(s.member)-1]
	s.member = s.member[:len(s.member)-1]
}

// run simulates a day: two rolling updates, and a fifth more replicas from 8 to 20 o'clock.
func (s *simulation) run() {
	replicas := s.want
	for s.now = 1; s.now <= day; s.now++ {
		switch s.now {
		case 8 * 3600:
			s.want = replicas + max(1, replicas/5)
		case 20 * 3600:
			s.want = replicas
		case 600: // All have started.
			s.figures = figures{movedBy: map[Reason]int{}}
		case 10 * 3600, 15 * 3600:
			s.old = s.current()
			s.revision++
		}
		s.churn()
		s.deploy()
		s.hub()
		if s.now%60 == 0 {
			s.sample()
		}
	}
}

func (s *simulation) current() string { return fmt.Sprintf("7c9f8d6b%02d", s.revision) }

// churn changes members and weights, and kills pods.
func (s *simulation) churn() {
	for n := float64(len(s.member)) * memberChurn / day; n > 0; n-- {
		if s.rand.Float64() < n {
			s.goes(s.rand.IntN(len(s.member)))
			s.comes()
		}
	}
	if s.now%600 == 0 {
		for range int(memberDrift * float64(len(s.member))) {
			m := &s.member[s.rand.IntN(len(s.member))]
			w := 1 + s.rand.Int64N(10)
			s.in.Weight[m.bucket] += w - m.weight
			m.weight = w
		}
	}
	for _, p := range s.pods {
		if p.dead == 0 && p.joined && !p.draining && s.rand.Float64() < 1.0/podLife {
			p.dead = s.now
		}
	}
}

// deploy does what a Deployment does, with a surge of a quarter.
func (s *simulation) deploy() {
	running, all, oldOnes := 0, 0, 0
	for _, p := range s.pods {
		if p.dead == 0 && !p.draining {
			all++
			if p.joined {
				running++
			}
			if p.revision != s.current() {
				oldOnes++
			}
		}
	}
	surge := 0
	if oldOnes > 0 {
		surge = max(1, s.want/4)
	}
	for start := min(s.want-(all-oldOnes), s.want+surge-all); start > 0; start-- {
		s.start()
	}
	for _, p := range s.pods {
		excess := running > s.want
		if excess && p.dead == 0 && p.joined && !p.draining && (oldOnes == 0 || p.revision != s.current()) {
			p.draining = true
			s.leaseWrites++
			s.replan = true
			running--
		}
	}
}

func (s *simulation) start() {
	s.joined++
	name := fmt.Sprintf("fleet-manager-%s-%05d-x7k2p", s.current(), s.joined)
	s.pods = append(s.pods, &pod{session: name, revision: s.current(), ready: s.now + podStart + s.rand.IntN(podStart/2)})
}

// hub has a second of writes.
func (s *simulation) hub() {
	s.writers = 0
	live := 0
	for _, p := range s.pods {
		switch {
		case !p.joined && s.now >= p.ready:
			must(s, s.table.Join(Member{Session: p.session, Revision: p.revision, Capacity: 1}))
			p.joined, s.lastJoin, s.replan = true, s.now, true
			s.leaseWrites++
			s.writers++
		case p.dead > 0 && s.now == p.dead+leaseTime:
			s.leaseWrites++ // The fence.
			must(s, s.table.Bury(p.session))
			s.replan = true
		case p.joined && p.dead == 0:
			live++
		}
	}
	s.drain()
	s.plan()
	s.leave()
	s.orphaned()
	s.writes += s.writers
	s.conflicts += int(float64(s.writers*(s.writers-1)) / 2 * conflictTime * 2)
	s.tableBytes += s.writers * s.size * live
	s.replicaSeconds += live
	if s.now%renewEvery == 0 {
		s.renewals += live
		s.watchBytes += live * live * leaseBytes
	}
}

// drain acknowledges what is drained by now, each owner in one write.
func (s *simulation) drain() {
	owners := map[string]bool{}
	for b := range s.table.Moving {
		at, begun := s.drained[b]
		owner := s.table.Owner[b]
		if i := s.pod(owner); i < 0 || s.pods[i].dead > 0 {
			continue
		}
		if !begun {
			s.drained[b] = s.now + min(drainMost, int(s.rand.ExpFloat64()*drainMean))
		} else if at <= s.now {
			if _, err := s.table.Acknowledge(b, owner); err != nil {
				s.Fatal(err)
			}
			delete(s.drained, b)
			owners[owner], s.replan = true, true
		}
	}
	s.writers += len(owners)
}

func (s *simulation) pod(session string) int {
	return slices.IndexFunc(s.pods, func(p *pod) bool { return p.session == session })
}

// plan is the planner's turn.
func (s *simulation) plan() {
	if !s.replan && s.now-s.lastPlan < replanEvery {
		return
	}
	s.replan, s.lastPlan = false, s.now
	s.in.Replicas, s.in.Settling = nil, s.now-s.lastJoin < settleTime
	for _, p := range s.pods {
		if p.joined && (p.dead == 0 || s.now < p.dead+leaseTime) {
			s.in.Replicas = append(s.in.Replicas, Replica{Session: p.session, Draining: p.draining})
		}
	}
	begin := time.Now()
	planned, steps := Plan(s.table, s.in)
	s.plans = append(s.plans, time.Since(begin))
	if s.table = planned; len(steps) > 0 {
		s.writers++
	}
	for _, step := range steps {
		if step.Do != Cancelled {
			s.movedBy[step.Why] += s.members[step.Bucket]
		}
	}
	s.replan = s.in.Settling
}

// leave ends the pods that have given up all.
func (s *simulation) leave() {
	owns := map[string]bool{}
	for _, owner := range s.table.Owner {
		owns[owner] = true
	}
	s.pods = slices.DeleteFunc(s.pods, func(p *pod) bool {
		if p.draining && p.dead == 0 && !owns[p.session] {
			must(s, s.table.Leave(p.session))
			s.writers++
			s.leaseWrites++
			return true
		}
		return p.dead > 0 && s.now > p.dead+leaseTime
	})
}

// orphaned notes for how long nobody works on a bucket with members: its owner is dead, or there is none.
func (s *simulation) orphaned() {
	working := map[string]bool{}
	for _, p := range s.pods {
		working[p.session] = p.joined && p.dead == 0
	}
	for b, owner := range s.table.Owner {
		switch since, lost := s.lost[b]; {
		case working[owner] || s.members[b] == 0:
			delete(s.lost, b)
		case !lost:
			s.lost[b] = s.now
		default:
			s.longest = max(s.longest, s.now-since)
		}
	}
}

// sample notes balance, among those that have joined and stay, and the size of the table.
func (s *simulation) sample() {
	if text, err := s.table.Encode(); err != nil {
		s.Fatal(err)
	} else {
		s.size = len(text)
		s.mostBytes = max(s.mostBytes, s.size)
	}
	load := map[string]int64{}
	for b, owner := range s.table.Owner {
		load[owner] += s.in.Weight[b]
	}
	sum, n, most, least := int64(0), 0, int64(0), int64(1<<62)
	for _, p := range s.pods {
		if p.joined && p.dead == 0 && !p.draining {
			l := load[p.session]
			sum, n, most, least = sum+l, n+1, max(most, l), min(least, l)
		}
	}
	if n > 0 && sum > 0 {
		mean := float64(sum) / float64(n)
		s.highest, s.lowest = append(s.highest, float64(most)/mean), append(s.lowest, float64(least)/mean)
		if heaviest := slices.Max(s.in.Weight); float64(most) > max(1.1*mean, mean+float64(heaviest)) || float64(least) < min(0.9*mean, mean-float64(heaviest)) {
			s.offMinutes++
		}
	}
}

// To run it: go test -run TestSimulateDays ./sharding/internal/protocol -simulate.
func TestSimulateDays(t *testing.T) {
	if !*simulate {
		t.Skip("only with -simulate: this takes minutes")
	}
	columns := []string{
		"members", "replicas", "buckets", "plan: median", "most", "table", "moves a day, per member: for balance", "of draining", "of dead",
		"max/mean: median", "99 %", "min/mean: median", "1 %", "out of bounds", "renewals/s", "table writes a day", "watch of Leases", "watch of the table",
		"longest without owner",
	}
	fmt.Printf("| %s |\n%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	for _, c := range [][3]int{
		{10, 3, 1024},
		{10, 10, 1024},
		{100, 3, 1024},
		{100, 10, 1024},
		{100, 50, 1024},
		{1000, 3, 1024},
		{1000, 10, 1024},
		{1000, 50, 1024},
		{5000, 3, 1024},
		{5000, 10, 1024},
		{5000, 50, 1024},
		{10000, 3, 1024},
		{10000, 10, 1024},
		{10000, 50, 1024},
		{100000, 200, 1024},
		{100000, 200, 4096},
		{100000, 200, 16384},
	} {
		s := newSimulation(t, c[0], c[1], c[2])
		s.run()
		s.print(c)
	}
}

func (s *simulation) print(c [3]int) {
	for _, f := range [][]float64{s.highest, s.lowest} {
		slices.Sort(f)
	}
	slices.Sort(s.plans)
	members := float64(len(s.member))
	fmt.Printf("| %d | %d | %d | %.1f ms | %.1f ms | %.1f KB | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %d min | %.1f | %d | %.3f MB/s | %.3f MB/s | %d s |\n",
		c[0], c[1], c[2], ms(s.plans[len(s.plans)/2]), ms(s.plans[len(s.plans)-1]), float64(s.mostBytes)/1000,
		float64(s.movedBy[Overloaded]+s.movedBy[Underloaded])/members, float64(s.movedBy[Draining])/members, float64(s.movedBy[Unowned])/members,
		s.highest[len(s.highest)/2], s.highest[len(s.highest)*99/100], s.lowest[len(s.lowest)/2], s.lowest[len(s.lowest)/100], s.offMinutes,
		float64(s.renewals)/day, s.writes+s.conflicts, float64(s.watchBytes)/day/1e6, float64(s.tableBytes)/day/1e6, s.longest)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
