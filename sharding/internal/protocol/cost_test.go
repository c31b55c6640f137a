package protocol

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestALevelSaysARateToFivePercent(t *testing.T) {
	for rate := leastRate; rate < 1400; rate *= 1.01 {
		level := LevelOf(rate)
		if level < 1 || level > MaxLevel || math.Abs(level.Rate()/rate-1) > 0.05 {
			t.Errorf("level %d of %g says %g", level, rate, level.Rate())
		}
		if LevelOf(level.Rate()) != level {
			t.Errorf("level %d says %g, which is of level %d", level, level.Rate(), LevelOf(level.Rate()))
		}
	}
	if one, twice := LevelOf(0.5).Rate(), LevelOf(1).Rate(); twice != 2*one {
		t.Errorf("twice %g is %g", one, twice)
	}
}

func TestWhatIsNoRateIsALevelAllTheSame(t *testing.T) {
	for rate, want := range map[float64]Level{
		math.Inf(1): MaxLevel, 1e300: MaxLevel, math.Inf(-1): 0, -1: 0, 0: 0, leastRate / 3: 0, leastRate: 1, leastRate * 0.6: 1, 5e-324: 0,
	} {
		if got := LevelOf(rate); got != want {
			t.Errorf("the level of %g is %d, want %d", rate, got, want)
		}
	}
	if got := LevelOf(math.NaN()); got != 0 {
		t.Errorf("the level of what is no number is %d", got)
	}
	if Unmeasured.Rate() != 0 || Level(0).Rate() != 0 {
		t.Error("nothing has a rate")
	}
}

func TestCostsAreReadAsTheyWereWritten(t *testing.T) {
	all := make([]Cost, MaxBuckets)
	for b := range all {
		all[b] = Cost{b, Level(b) % (MaxLevel + 1)}
	}
	for _, costs := range [][]Cost{{}, {{0, 0}}, {{0, 3}, {1, MaxLevel}}, {{7, 1}, {300, 2}, {MaxBuckets - 1, 3}}, all} {
		text := EncodeCosts(costs)
		got, err := DecodeCosts(text)
		if err != nil || !slices.Equal(got, costs) {
			t.Errorf("%.50q: %v, %v", text, got, err)
		}
	}
	if text := EncodeCosts(all[:342]); len(text) > 1000 {
		t.Errorf("a third of 1024 buckets takes %d bytes", len(text))
	}
}

func TestCostsThatMakeNoSenseAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "version",
		"NaN":                                   "version",
		"2:":                                    "version",
		"1:1e300":                               "illegal",
		"1:-1":                                  "illegal",
		"1:AA":                                  "is none",   // no level
		"1:ALU":                                 "is none",   // a level too great
		"1://///////////w":                      "no number", // no bucket
		"1:gIABAQ":                              "too large", // no such bucket
		"1:AwEAAQ":                              "two costs", // the same bucket twice
		"1:" + strings.Repeat("A", MaxCostText): "bytes",
	} {
		costs, err := DecodeCosts(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, %v; want an error that has %q", text, costs, err, want)
		}
	}
}

// FuzzCosts: whatever a session says, it is refused, or is costs that can be reckoned with.
func FuzzCosts(f *testing.F) {
	for _, seed := range []string{"", "1:", "1:AAA", "1:AwEAAQ", EncodeCosts([]Cost{{3, 7}, {1023, MaxLevel}}), "1:\n", "NaN"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		costs, err := DecodeCosts(text)
		if err != nil {
			return
		}
		last := -1
		for _, c := range costs {
			if c.Bucket <= last || c.Bucket >= MaxBuckets || c.Level < 0 || c.Level > MaxLevel {
				t.Fatalf("%q: %v", text, costs)
			}
			last = c.Bucket
		}
		if again, err := DecodeCosts(EncodeCosts(costs)); err != nil || !slices.Equal(again, costs) {
			t.Fatalf("%q: %v is written as %v: %v", text, costs, again, err)
		}
	})
}

func TestAnEstimateFollowsWhatIsSpent(t *testing.T) {
	var e estimate
	if e.level(time.Second) != Unmeasured {
		t.Error("a bucket was measured at once")
	}
	e.add(2*time.Second, 10*time.Second, 10*time.Minute)
	if e.rate != 0.2 || e.level(10*time.Second) != LevelOf(0.2) || e.level(11*time.Second) != Unmeasured {
		t.Errorf("%+v", e)
	}
	e.add(4*time.Second, 10*time.Second, 10*time.Minute)
	if math.Abs(e.rate-0.3) > 1e-9 {
		t.Errorf("the mean of two samples is %g, want 0.3", e.rate)
	}
	for range 600 {
		e.add(time.Second, 10*time.Second, 10*time.Minute)
	}
	if math.Abs(e.rate-0.1) > 1e-3 {
		t.Errorf("after 100 minutes, the estimate is %g, want 0.1", e.rate)
	}
	for range 60 {
		e.add(0, 10*time.Second, 10*time.Minute)
	}
	if want := 0.1 / math.E; math.Abs(e.rate-want) > 0.001 {
		t.Errorf("after its memory, the estimate is %g, want %g", e.rate, want)
	}
	before := e
	e.add(-time.Second, time.Second, time.Minute)
	e.add(time.Second, 0, time.Minute)
	e.add(time.Second, -time.Second, time.Minute)
	if e != before {
		t.Errorf("samples that are none count: %+v", e)
	}
	if known := estimateOf(LevelOf(0.5), time.Minute); known.level(time.Minute) != LevelOf(0.5) {
		t.Errorf("what is known counts as %+v", known)
	}
	if none := estimateOf(Unmeasured, time.Minute); none != (estimate{}) {
		t.Errorf("what is not known counts as %+v", none)
	}
}

func TestMembersWeighByTheirLabelsOrWhatTheyCost(t *testing.T) {
	const mean = 0.125 // of what is measured below
	for name, tc := range map[string]struct {
		loads []Load
		want  []int64
	}{
		"NothingIsMeasured": {
			[]Load{{Measured: 2, Level: Unmeasured}, {Labelled: 7, Level: Unmeasured}, {Labelled: 3, Measured: 1, Level: Unmeasured}, {Level: Unmeasured}},
			[]int64{2000, 7000, 4000, 0},
		},
		"NothingCosts":    {[]Load{{Measured: 1}, {Measured: 3}}, []int64{1000, 3000}},
		"AllCostTheSame":  {[]Load{{Measured: 1, Level: LevelOf(0.5)}, {Measured: 2, Level: LevelOf(1)}}, []int64{1000, 2000}},
		"OneCosts":        {[]Load{{Measured: 1, Level: LevelOf(4 * mean)}, {Measured: 1}, {Measured: 2}}, []int64{2500, 500, 1000}},
		"OneIsUnmeasured": {[]Load{{Measured: 1, Level: LevelOf(4 * mean)}, {Measured: 3}, {Measured: 1, Level: Unmeasured}}, []int64{2500, 1500, 1000}},
		"LittleIsCosted":  {[]Load{{Measured: 1, Level: 1}, {Measured: 999}}, []int64{1244, 998756}},
		"LabelsAndCosts":  {[]Load{{Labelled: 2, Measured: 1, Level: LevelOf(4 * mean)}, {Labelled: 5, Measured: 3}}, []int64{4500, 6500}},
		"TheLocalCluster": {[]Load{{Level: LevelOf(2 * mean)}, {Measured: 1, Level: LevelOf(2 * mean)}, {Measured: 3}}, []int64{1000, 1500, 1500}},
		"TheLocalAlone":   {[]Load{{Level: LevelOf(2 * mean)}, {Level: Unmeasured}}, []int64{500, 0}},
		"Nobody":          {[]Load{{Level: Unmeasured}, {}}, []int64{0, 0}},
	} {
		if got := Weigh(tc.loads); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Whatever is said of costs: the sum is that of members, and no replica that owns as much weight as others has more than twice
// as many members.
func TestNothingThatIsSaidMakesMembersLight(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			loads := make([]Load, 1+r.IntN(2000))
			var members int
			for i := range loads {
				loads[i] = Load{Measured: r.IntN(20), Level: Level(r.IntN(int(MaxLevel)+2) - 1)}
				if r.IntN(2) == 0 {
					loads[i].Level = MaxLevel * Level(r.IntN(2))
				}
				members += loads[i].Measured
			}
			var sum int64
			for i, w := range Weigh(loads) {
				sum += w
				if 2*w+1 < WeightUnit*int64(loads[i].Measured) || w < 0 {
					t.Errorf("%+v weighs %d", loads[i], w)
				}
			}
			if want := WeightUnit * float64(members); math.Abs(float64(sum)-want) > float64(len(loads)) {
				t.Errorf("%d members weigh %d", members, sum)
			}
		})
	}
}

// spending is what a replica has that holds one bucket, which costs as much.
func spending(of int, term any, spent time.Duration) func(int) (any, time.Duration) {
	return func(b int) (any, time.Duration) {
		if b == of {
			return term, spent
		}
		return nil, 0
	}
}

func costsOf(t *testing.T, table *Table, of ...Cost) (*Costs, map[string]string) {
	t.Helper()
	c := NewCosts(DefaultPace())
	texts := map[string]string{"a": EncodeCosts(of)}
	if problems := c.Hear(time.Minute, table, texts); problems != nil {
		t.Fatal(problems)
	}
	return c, texts
}

func TestASessionIsHeardOnWhatItOwnsAlone(t *testing.T) {
	table := joined(t, 4, "a", "b")
	must(t, table.Claim(0, "a"))
	must(t, table.Claim(1, "b"))
	c, texts := costsOf(t, table, Cost{0, 10}, Cost{1, 20}, Cost{2, 30}, Cost{1000, 40})
	if !c.Heed(time.Minute) || c.Used(0) != 10 || c.Used(1) != Unmeasured || c.Used(2) != Unmeasured || c.Used(1000) != Unmeasured {
		t.Errorf("used are %v", c.used)
	}
	if of, strange, problem := c.Said("a"); of != 1 || strange != 3 || problem != nil {
		t.Errorf("%d and %d, %v", of, strange, problem)
	}
	if of, strange, problem := c.Said("b"); of != 0 || strange != 0 || problem != nil {
		t.Errorf("of who has said nothing: %d and %d, %v", of, strange, problem)
	}
	texts["b"] = "NaN"
	if problems := c.Hear(time.Minute, table, texts); len(problems) != 1 || problems["b"] == nil {
		t.Errorf("problems are %v", problems)
	}
	if problems := c.Hear(time.Minute, table, texts); problems != nil {
		t.Errorf("problems are told again: %v", problems)
	}
	if _, _, problem := c.Said("b"); problem == nil {
		t.Error("the problem is not shown")
	}
	delete(texts, "b")
	c.Hear(time.Minute, table, texts)
	if _, _, problem := c.Said("b"); problem != nil {
		t.Error("the problem is shown of a session that says nothing")
	}
}

func TestWhatWasSaidOfABucketThatMovesCountsUntilItsOwnerSaysMore(t *testing.T) {
	table := joined(t, 4, "a", "b")
	must(t, table.Claim(0, "a"))
	c, texts := costsOf(t, table, Cost{0, 100})
	moved := table.Next()
	must(t, moved.Move(0, "b"))
	if _, err := moved.Acknowledge(0, "a"); err != nil {
		t.Fatal(err)
	}
	texts["a"] = EncodeCosts(nil)
	now := 3 * time.Minute
	c.Hear(now, moved, texts)
	c.Sample(now, true, spending(0, "term", 0)) // It is b.
	if c.Heed(now); c.Used(0) != 100 {
		t.Errorf("the level is %d", c.Used(0))
	}
	text, ok := c.Say(now)
	if got, err := DecodeCosts(text); !ok || err != nil || !slices.Equal(got, []Cost{{0, 100}}) {
		t.Errorf("the new owner says %v at once (%v), want what was known", got, err)
	}
	now += 11 * time.Minute
	c.Hear(now, moved, texts)
	if c.Heed(now); c.Used(0) != Unmeasured {
		t.Errorf("the level is %d, though nobody has said so for 11 minutes", c.Used(0))
	}
	c.Sample(now, true, spending(1, "another", 0))
	c.Sample(now+time.Second, true, spending(1, "another", 0))
	if got := c.own[1].level(0); got != 0 {
		t.Errorf("a bucket of which nothing is known has level %d", got)
	}
}

func TestABucketIsMeasuredOnceItIsWarm(t *testing.T) {
	table := joined(t, 4, "a")
	must(t, table.Claim(0, "a"))
	c, _ := costsOf(t, table)
	now := time.Minute
	pass := func(d time.Duration, term any, proved bool, spent time.Duration) {
		for range int(d / (10 * time.Second)) {
			now += 10 * time.Second
			c.Sample(now, proved, spending(0, term, spent))
		}
	}
	c.Sample(now, true, spending(0, "first", 0))
	pass(2*time.Minute, "first", true, time.Hour)
	if c.own[0].over > 0 {
		t.Errorf("%s were measured while all was listed", c.own[0].over)
	}
	pass(2*time.Minute, "first", true, time.Second)
	if got := c.own[0].level(c.pace.Enough); got != LevelOf(0.1) {
		t.Errorf("level %d, want %d", got, LevelOf(0.1))
	}
	pass(2*time.Minute, "first", false, 0)
	if got := c.own[0].level(c.pace.Enough); got != LevelOf(0.1) {
		t.Errorf("level %d after an outage of the local cluster, want %d", got, LevelOf(0.1))
	}
	pass(time.Minute, nil, true, 0)
	if got := c.own[0].level(0); c.own[0].over > 0 {
		t.Errorf("level %d of a bucket that another owns", got)
	}
	pass(time.Minute, "second", true, time.Hour)
	if c.own[0].over > 0 {
		t.Errorf("it was measured anew at once: %+v", c.own[0])
	}
}

func TestOnlyMuchElseIsSaidAndNotTooSoon(t *testing.T) {
	table := joined(t, 2, "a")
	must(t, table.Claim(0, "a"))
	must(t, table.Claim(1, "a"))
	c, _ := costsOf(t, table)
	now := time.Hour
	set := func(rates ...float64) {
		for b, rate := range rates {
			c.own[b].term, c.own[b].estimate = "term", estimate{rate, time.Hour}
		}
	}
	says := func(what string, want bool) {
		t.Helper()
		if text, ok := c.Say(now); ok != want {
			t.Errorf("%s: says %q: %t, want %t", what, text, ok, want)
		}
	}
	if text, ok := c.Say(now); !ok || text != EncodeCosts(nil) {
		t.Errorf("at first it says %q, want that it measures", text)
	}
	set(1, 1)
	says("within the same minute", false)
	now += time.Minute
	says("measured now", true)
	now += time.Hour
	set(1.15, 1)
	says("a little more", false)
	set(1.1, 1.15)
	says("a little more of all", true)
	now += time.Hour
	set(1.1, 0.5)
	says("less of one", true)
	now += time.Hour
	c.own[0].term = nil
	says("a bucket less", true)
	now += time.Hour
	says("nothing else", false)
	c.Begin()
	says("another session", true)
}

func TestPlansHeedWhatIsNewAndNotTooSoon(t *testing.T) {
	table := joined(t, 2, "a")
	must(t, table.Claim(0, "a"))
	c, texts := costsOf(t, table, Cost{0, 10})
	now := time.Minute
	if !c.Heed(now) {
		t.Error("the first is not heeded")
	}
	texts["a"] = EncodeCosts([]Cost{{0, 20}})
	now += 59 * time.Second
	c.Hear(now, table, texts)
	if c.Heed(now) || c.Used(0) != 10 {
		t.Error("it is heeded too soon")
	}
	if now += time.Second; !c.Heed(now) || c.Used(0) != 20 {
		t.Error("it is not heeded after a minute")
	}
	if now += time.Minute; c.Heed(now) {
		t.Error("what is as before is news")
	}
	c.Hear(now, New(8, 1), texts)
	if c.Used(0) != Unmeasured || c.Due(now) > 0 {
		t.Error("of a table of another size, something is known")
	}
}

func TestAHundredthOfTheBucketsMayMoveInAMinute(t *testing.T) {
	var a Allowance
	table := joined(t, 1000, "a", "b", "c")
	two := []Replica{{Session: "a"}, {Session: "b"}, {Session: "c", Draining: true}}
	in := Input{Replicas: two}
	now := time.Hour
	want := func(what string, most int) {
		t.Helper()
		if got := a.Most(now, 1000, in.Replicas); got != most {
			t.Errorf("%s, %d may move, want %d", what, got, most)
		}
	}
	moves := func(n int, why Reason) []Step { return slices.Repeat([]Step{{Do: Moved, Why: why}}, n) }
	want("at first, when replicas may have joined", 0)
	in.Settling = true
	a.Planned(table, in, nil)
	want("while more may join", 0)
	in.Settling = false
	a.Planned(table, in, moves(100, Underloaded))
	want("as long as something moves", 0)
	a.Planned(table, in, nil)
	want("once each has its share", 10)
	a.Planned(table, in, append(moves(3, Overloaded), moves(3, Underloaded)...))
	want("after six", 4)
	a.Planned(table, in, append(moves(9, Draining), Step{Do: Claimed, Why: Unowned}, Step{Do: Cancelled, Why: TargetLost}))
	want("after others than for balance", 4)
	a.Planned(table, in, moves(4, Overloaded))
	want("after all", -1)
	now += 30 * time.Second
	want("half a minute later", 5)
	now += time.Hour
	want("long after", 10)
	in.Replicas = two[:1]
	want("when one has left", 10)
	in.Replicas = two
	want("when one has joined", 0)
	a.Planned(table, in, nil)
	in.Replicas = []Replica{{Session: "a"}, {Session: "b"}, {Session: "c"}}
	want("when one drains no more", 0)
	var few Allowance
	few.Most(now, 10, two)
	few.Planned(table, Input{Replicas: two}, nil)
	if got := few.Most(now, 10, two); got != 1 {
		t.Errorf("of ten buckets %d may move at first, want 1", got)
	}
	few.Planned(table, Input{Replicas: two}, moves(1, Overloaded))
	if got := few.Most(now.Round(0)+9*time.Minute, 10, two); got != -1 {
		t.Errorf("of ten buckets %d may move after 9 minutes, want none", got)
	}
	if got := few.Most(now+11*time.Minute, 10, two); got != 1 {
		t.Errorf("of ten buckets %d may move after 11 minutes, want 1", got)
	}
}

func TestAPlanMovesNoMoreForBalanceThanItMay(t *testing.T) {
	for _, most := range []int{-1, 1, 3, 0} {
		s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 64, 640, 1))
		s.join(2, "r1")
		s.settle()
		s.join(1, "r1")
		s.in.Most = most
		_, steps := Plan(s.table, s.in)
		if want := max(0, most); most == 0 && len(steps) < 4 || most != 0 && len(steps) != want {
			t.Errorf("%d steps, of which there may be %d", len(steps), most)
		}
		s.kill(0)
		if _, steps := Plan(s.table, s.in); len(steps) < 20 {
			t.Errorf("%d steps for what nobody owns: that is not for balance", len(steps))
		}
	}
}
