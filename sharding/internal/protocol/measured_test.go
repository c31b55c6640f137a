package protocol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// costly is a member whose reconciles take time.
type costly struct {
	bucket int
	often  float64 // reconciles a second
	each   float64 // seconds
	region int     // it has its day when the region has
}

// measuredDay is a day of a fleet whose members have no weights by label. Each replica measures what its buckets cost.
type measuredDay struct {
	*share
	rand    *rand.Rand
	now     time.Duration
	members []costly
	costs   map[string]*Costs
	texts   map[string]string
	owner   []string
	term    []*int // another one for each owner of a bucket
	taken   []time.Duration
	limit   Allowance
	swing   float64 // how much a member's reconciles are more or fewer at noon and at midnight
	drift   float64 // this part of the members costs something else each hour
	planned bool
	history [][]time.Duration // when each bucket was moved for balance

	used, truth []float64 // the balance, each minute: the largest deviation from the mean
}

const sampleOfDays = 30 * time.Second

func newMeasuredDay(t *testing.T, seed uint64, members, replicas int) *measuredDay {
	t.Helper()
	const buckets = 1024
	d := &measuredDay{
		share: shared(t, make([]int64, buckets)), rand: rand.New(rand.NewPCG(seed, 15)), costs: map[string]*Costs{}, texts: map[string]string{},
		owner: make([]string, buckets), term: make([]*int, buckets), taken: make([]time.Duration, buckets), history: make([][]time.Duration, buckets),
	}
	zipf := rand.NewZipf(d.rand, 1.3, 5, 10000)
	for range members {
		d.members = append(d.members, d.draw(zipf))
	}
	d.join(replicas, "r1")
	return d
}

// draw makes a member: most cost little, and some a hundred times as much.
func (d *measuredDay) draw(zipf *rand.Zipf) costly {
	return costly{d.rand.IntN(len(d.owner)), 0.01 + float64(zipf.Uint64())/300, 0.01 + d.rand.ExpFloat64()*0.03, d.rand.IntN(3)}
}

// run goes on until that time.
func (d *measuredDay) run(whole time.Duration) {
	zipf := rand.NewZipf(d.rand, 1.3, 5, 10000)
	for d.now < whole {
		d.now += sampleOfDays
		if d.now%time.Hour == 0 {
			for range int(d.drift * float64(len(d.members))) {
				m := &d.members[d.rand.IntN(len(d.members))]
				bucket := m.bucket
				*m = d.draw(zipf)
				m.bucket = bucket
			}
		}
		d.measure()
		d.plans()
		if d.now%time.Minute == 0 && d.now > 30*time.Minute {
			d.sample()
		}
	}
}

// rate is how many reconciles a second a member has now.
func (d *measuredDay) rate(m costly) float64 {
	phase := 2*math.Pi*d.now.Hours()/24 + float64(m.region)*2*math.Pi/3
	return m.often * (1 + d.swing*math.Sin(phase))
}

func (d *measuredDay) measure() {
	spent := make([]time.Duration, len(d.owner))
	for _, m := range d.members {
		n := poisson(d.rand, d.rate(m)*sampleOfDays.Seconds())
		if d.now-d.taken[m.bucket] < time.Minute {
			n += 100 // it was listed anew
		}
		spent[m.bucket] += time.Duration(m.each * sum(d.rand, n) * float64(time.Second))
	}
	for _, r := range d.in.Replicas {
		c := d.costs[r.Session]
		if c == nil {
			c = NewCosts(DefaultPace())
			d.costs[r.Session] = c
		}
		if problems := c.Hear(d.now, d.table, d.texts); len(problems) > 0 {
			d.Fatal(problems)
		}
		c.Sample(d.now, true, func(b int) (any, time.Duration) {
			if d.owner[b] != r.Session {
				return nil, 0
			}
			return d.term[b], spent[b]
		})
		if text, ok := c.Say(d.now); ok {
			d.texts[r.Session] = text
		}
	}
}

// sum is that of as many times whose mean is 1.
func sum(r *rand.Rand, n int) (sum float64) {
	if n > 20 {
		return max(0, float64(n)+math.Sqrt(float64(n))*r.NormFloat64())
	}
	for range n {
		sum += r.ExpFloat64()
	}
	return sum
}

func poisson(r *rand.Rand, mean float64) (n int) {
	if mean > 30 {
		return int(max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	limit, product := math.Exp(-mean), r.Float64()
	for n = 0; product > limit; n++ {
		product *= r.Float64()
	}
	return n
}

// plans is the planner's turn.
func (d *measuredDay) plans() {
	planner := d.costs[d.in.Replicas[0].Session]
	if !planner.Heed(d.now) && d.planned && len(d.table.Moving) == 0 {
		return
	}
	d.acknowledge()
	d.in.Weight = Weigh(d.loads(planner.Used))
	d.in.Most = d.limit.Most(d.now, len(d.owner), d.in.Replicas)
	planned, steps := Plan(d.table, d.in)
	d.limit.Planned(planned, d.in, steps)
	d.table = planned
	d.planned = len(steps) == 0
	for b, owner := range d.table.Owner {
		if d.owner[b] != owner {
			d.owner[b], d.term[b], d.taken[b] = owner, new(int), d.now
		}
	}
	for _, step := range steps {
		if step.Do == Moved {
			d.history[step.Bucket] = append(d.history[step.Bucket], d.now)
		}
	}
}

func (d *measuredDay) loads(level func(b int) Level) []Load {
	loads := make([]Load, len(d.owner))
	for _, m := range d.members {
		loads[m.bucket].Measured++
	}
	for b := range loads {
		loads[b].Level = level(b)
	}
	return loads
}

func (d *measuredDay) sample() {
	d.used = append(d.used, d.deviation(d.in.Weight))
	rate := make([]float64, len(d.owner))
	for _, m := range d.members {
		rate[m.bucket] += d.rate(m) * m.each
	}
	d.truth = append(d.truth, d.deviation(Weigh(d.loads(func(b int) Level { return LevelOf(rate[b]) }))))
}

// deviation is by how much of the mean a replica has more or less than it.
func (d *measuredDay) deviation(weight []int64) (most float64) {
	load := map[string]float64{}
	for b, owner := range d.table.Owner {
		load[owner] += float64(weight[b])
	}
	mean := float64(total(weight)) / float64(len(d.in.Replicas))
	for _, r := range d.in.Replicas {
		most = max(most, math.Abs(load[r.Session]-mean)/mean)
	}
	return most
}

// quantile returns how large a part of the numbers is at most.
func quantile(of []float64, part float64) float64 {
	slices.Sort(of)
	return of[int(part*float64(len(of)-1))]
}

// moved returns how many buckets have moved after a time, and how often the one that did most often.
func (d *measuredDay) moved(after time.Duration) (moved, again int) {
	for _, at := range d.history {
		for _, when := range at {
			if when > after {
				moved++
			}
		}
		again = max(again, len(at))
	}
	return moved, again
}

// Reconciles come at random, and take as long as they happen to: that alone moves nothing.
func TestNoiseOfMeasuredCostsMovesNothing(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			d := newMeasuredDay(t, seed, 500, 3)
			d.run(12 * time.Hour)
			early, _ := d.moved(0)
			late, _ := d.moved(2 * time.Hour)
			t.Logf("%d buckets moved, %d of them after two hours", early, late)
			if early > 20 || late > 1 {
				t.Errorf("%d buckets moved, %d of them after two hours", early, late)
			}
			d.checkDay(0.001, 0.12)
		})
	}
}

// A replica joins in the morning, and the one that plans dies in the afternoon, on a day on which each third of the members has its
// noon at another hour, and in each hour one in twenty begins to cost something else.
func TestMeasuredWeightsKeepTheBalanceOfADayOnWhichCostsDrift(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			d := newMeasuredDay(t, seed, 500, 3)
			d.swing, d.drift = 0.8, 0.05
			d.run(6 * time.Hour)
			d.join(1, "r1")
			d.planned = false
			d.run(12 * time.Hour)
			delete(d.texts, d.in.Replicas[0].Session)
			d.kill(0)
			d.planned = false
			d.run(18 * time.Hour)
			moved, again := d.moved(0)
			t.Logf("%d buckets moved, one %d times", moved, again)
			if moved > 300 || again > 3 { // About 150 to the one that joined.
				t.Errorf("%d buckets moved, one %d times", moved, again)
			}
			d.checkDay(0.02, 0.25)
		})
	}
}

// checkDay checks that replicas are within their bounds, but for a part of the minutes, and near them by what members really cost.
func (d *measuredDay) checkDay(off, truth float64) {
	d.Helper()
	d.Logf("deviation by used weights: %.3f, 99 %% %.3f, most %.3f; by true ones: %.3f, 99 %% %.3f, most %.3f", quantile(d.used, 0.5),
		quantile(d.used, 0.99), quantile(d.used, 1), quantile(d.truth, 0.5), quantile(d.truth, 0.99), quantile(d.truth, 1))
	if got := quantile(d.used, 1-off); got > 0.101 {
		d.Errorf("a replica has %.0f %% more or less than the mean, by the weights that are used", 100*got)
	}
	if got := quantile(d.truth, 0.99); got > truth {
		d.Errorf("a replica has %.0f %% more or less than the mean, by what members really cost", 100*got)
	}
}

// To run it: go test -run TestSimulateMeasuredDays ./sharding/internal/protocol -simulate.
func TestSimulateMeasuredDays(t *testing.T) {
	if !*simulate {
		t.Skip("only with -simulate: this takes minutes")
	}
	fmt.Printf("| members, replicas | costs | deviation: median, 99 %% | by true costs: median, 99 %% | moved for balance, buckets a day |\n%s|\n",
		strings.Repeat("|---", 5))
	for _, c := range [][2]int{{100, 3}, {1000, 3}, {1000, 10}, {10000, 3}, {10000, 20}} {
		for drifts, name := range []string{"noise alone", "drift"} {
			d := newMeasuredDay(t, 1, c[0], c[1])
			d.swing, d.drift = 0.8*float64(drifts), 0.05*float64(drifts)
			d.run(24 * time.Hour)
			moved, _ := d.moved(0)
			fmt.Printf("| %d, %d | %s | %.2f, %.2f | %.2f, %.2f | %d |\n", c[0], c[1], name, quantile(d.used, 0.5), quantile(d.used, 0.99),
				quantile(d.truth, 0.5), quantile(d.truth, 0.99), moved)
		}
	}
}
