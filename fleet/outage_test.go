package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server stands for one API server of many: it answers, refuses, or has no answer.
type server struct {
	health *health

	mu         sync.Mutex // guards what follows; a test that has waited for all to come to rest needs it not to read
	refuse     bool
	frozen     chan struct{}   // nil, or closed when it thaws
	asked      []time.Duration // since begin
	begin      time.Time
	turned     time.Time // when the state last changed
	redials    int
	underWay   int
	mostAtOnce int
}

func (s *server) probe(ctx context.Context) error {
	refuse, frozen := s.begun()
	defer s.ended()
	if refuse {
		return errors.New("refused")
	}
	if frozen != nil {
		select {
		case <-frozen:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *server) begun() (refuse bool, frozen chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay++
	s.mostAtOnce = max(s.mostAtOnce, s.underWay)
	s.asked = append(s.asked, time.Since(s.begin))
	return s.refuse, s.frozen
}

func (s *server) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
}

// restart forgets when it was asked.
func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.begin = nil, time.Now()
}

// set has it refuse, or freeze until the channel is closed.
func (s *server) set(refuse bool, frozen chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.frozen = refuse, frozen
}

func (*server) verify(context.Context) error { return nil }
func (*server) heard() time.Time             { return time.Time{} }

func (s *server) redial() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redials++
}

// probes returns how often it was asked.
func (s *server) probes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// servers returns so many that are Ready and idle, of one fleet.
func servers(t *testing.T, n int, opts HealthOptions) []*server {
	t.Helper()
	var o outage
	all := make([]*server, n)
	for i := range all {
		s := &server{begin: time.Now()}
		before := Ready
		s.health = newHealth(Options{Health: opts}.withDefaults().Health, s, func(state State, _ error) {
			if state == before {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			before, s.turned = state, time.Now()
			o.down.Add(map[State]int64{Unreachable: 1, Ready: -1}[state])
		}, func() {})
		s.health.pause = o.pause
		s.health.watch(t.Context())
		all[i] = s
	}
	return all
}

// turn waits until all are in a state, and returns how long the last of them took.
func turn(all []*server, state State, patience time.Duration) (last time.Duration, missing int) {
	begin := time.Now()
	<-time.After(patience)
	synctest.Wait()
	for _, s := range all {
		if s.health.state != state {
			missing++
			continue
		}
		last = max(last, s.turned.Sub(begin))
	}
	return last, missing
}

// TestAMemberThatIsLostIsNoticedInTime: and is Ready again soon after it is back.
func TestAMemberThatIsLostIsNoticedInTime(t *testing.T) {
	cases := map[string]struct {
		frozen  bool
		request bool // one is under way when it is lost
		fails   bool // it fails at once
		within  time.Duration
		opts    HealthOptions
	}{
		"FrozenWithARequest":    {frozen: true, request: true, within: 5500 * time.Millisecond},
		"FrozenWithoutTraffic":  {frozen: true, within: 15 * time.Second},
		"RefusedWithARequest":   {request: true, fails: true, within: 2 * time.Second},
		"RefusedWithoutTraffic": {within: 12 * time.Second},
		"OneProbeSuffices":      {frozen: true, request: true, within: 5500 * time.Millisecond, opts: HealthOptions{FailureThreshold: 1}},
		"ManyProbesAreNeeded":   {frozen: true, request: true, within: 12500 * time.Millisecond, opts: HealthOptions{FailureThreshold: 6}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servers(t, 1, tc.opts)[0]
				thaw := make(chan struct{})
				s.set(!tc.frozen, map[bool]chan struct{}{true: thaw}[tc.frozen])
				var f *exchange
				if tc.request {
					f = s.health.sent()
				}
				if tc.fails {
					s.health.ended(f)
					s.health.failed()
				}
				if last, missing := turn([]*server{s}, Unreachable, time.Minute); missing > 0 || last > tc.within {
					t.Errorf("it is noticed after %s (%d is not), want within %s", last, missing, tc.within)
				}
				if most := s.health.opts.FailureThreshold; s.mostAtOnce > most {
					t.Errorf("%d probes at once, want at most %d", s.mostAtOnce, most)
				}
				s.set(false, nil)
				close(thaw)
				if last, missing := turn([]*server{s}, Ready, time.Minute); missing > 0 || last > 3*time.Second {
					t.Errorf("it is back after %s (%d is not), want within 3s", last, missing)
				}
			})
		})
	}
}

// TestMembersThatAreDownAreAskedAtTheRateOfTheFleet: however many they are, and the one that was asked longest ago is next.
func TestMembersThatAreDownAreAskedAtTheRateOfTheFleet(t *testing.T) {
	cases := map[string]struct {
		members int
		frozen  bool
		turns   int // that one probe takes
		back    time.Duration
	}{
		"ManyRefuse":    {members: 200, turns: 1, back: 3400 * time.Millisecond},
		"MoreAreFrozen": {members: 600, frozen: true, turns: patience, back: 2200 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, tc.members, HealthOptions{})
				thaw := make(chan struct{})
				for _, s := range all {
					s.set(!tc.frozen, map[bool]chan struct{}{true: thaw}[tc.frozen])
				}
				if _, missing := turn(all, Unreachable, 2*time.Minute); missing > 0 {
					t.Fatalf("%d are not noticed", missing)
				}
				for _, s := range all {
					s.restart()
				}
				<-time.After(time.Minute)
				synctest.Wait()
				probes, share := 0, time.Duration(tc.turns*tc.members)*time.Second/askDown
				for _, s := range all {
					probes += len(s.asked)
					for i, at := range s.asked {
						if i > 0 && (at-s.asked[i-1] < share*9/10 || at-s.asked[i-1] > share*11/10) {
							t.Fatalf("one was asked again after %s, want %s and a tenth more or less", at-s.asked[i-1], share)
						}
					}
				}
				if want := 60 * askDown / tc.turns; probes > want*11/10 || probes < want*9/10 {
					t.Errorf("%d probes in a minute, want about %d", probes, want)
				}
				for _, s := range all {
					s.set(false, nil)
				}
				close(thaw)
				if last, missing := turn(all, Ready, time.Minute); missing > 0 || last > tc.back {
					t.Errorf("the last is back after %s (%d are not), want within %s", last, missing, tc.back)
				}
			})
		})
	}
}

// redialed is a server to which nothing may be sent while its connections are closed.
type redialed struct {
	*server
	meanwhile int // probes
}

func (r *redialed) redial() {
	r.server.redial()
	before := r.probes()
	<-time.After(time.Minute)
	r.meanwhile += r.probes() - before
}

// TestNoProbeBeginsOnAConnectionThatIsBeingClosed: it would fail at once, and another one is not due soon.
func TestNoProbeBeginsOnAConnectionThatIsBeingClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servers(t, 1, HealthOptions{})[0]
		r := &redialed{server: s}
		s.health.link = r
		s.set(false, make(chan struct{}))
		s.health.sent()
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if s.redials != 1 || r.meanwhile > 0 {
			t.Errorf("%d redials, %d probes meanwhile; want one and none", s.redials, r.meanwhile)
		}
	})
}

// TestIdleMembersAreNotAskedInStep: those that were connected together.
func TestIdleMembersAreNotAskedInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, 200, HealthOptions{})
		<-time.After(61 * time.Second)
		synctest.Wait()
		perSecond := map[int]int{}
		for _, s := range all {
			for _, at := range s.asked {
				perSecond[int(at/time.Second)]++
			}
		}
		for second := 50; second < 60; second++ {
			if n := perSecond[second]; n > 90 {
				t.Errorf("%d of 200 are asked in second %d", n, second)
			}
		}
	})
}

// TestASlowServerStaysReady: one that answers probes late, or sends a part of what was asked before.
func TestASlowServerStaysReady(t *testing.T) {
	cases := map[string]func(t *testing.T, s *server, f *exchange){
		"AnswersProbesLate": func(_ *testing.T, s *server, _ *exchange) {
			for range 15 {
				thaw := make(chan struct{})
				s.set(false, thaw)
				<-time.After(4 * time.Second)
				close(thaw)
			}
		},
		"SendsParts": func(_ *testing.T, s *server, f *exchange) {
			s.set(false, make(chan struct{}))
			for range 19 {
				<-time.After(3 * time.Second)
				f.arrives()
			}
		},
	}
	for name, live := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servers(t, 1, HealthOptions{})[0]
				live(t, s, s.health.sent())
				synctest.Wait()
				if !s.turned.IsZero() || s.redials > 0 {
					t.Errorf("it was taken for lost, and its connections were closed %d times", s.redials)
				}
			})
		})
	}
}

// TestPartsOfAnAnswerThatDoesNotEndAnswerNoDoubtForEver: like events, they may flow back while nothing reaches the server.
func TestPartsOfAnAnswerThatDoesNotEndAnswerNoDoubtForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servers(t, 1, HealthOptions{})[0]
		s.set(false, make(chan struct{}))
		f := s.health.sent()
		for range 90 {
			<-time.After(time.Second)
			f.arrives()
		}
		synctest.Wait()
		if s.turned.IsZero() {
			t.Error("it is Ready, although no probe was answered")
		}
	})
}

// TestARequestThatTakesLongHasTheServerAskedLessAndLess: such as one that follows the log of a container.
func TestARequestThatTakesLongHasTheServerAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servers(t, 1, HealthOptions{})[0]
		f := s.health.sent()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if n := len(s.asked); n > 80 || n < 60 {
			t.Errorf("asked %d times in ten minutes, want about once in ProbeInterval after the first minute", n)
		}
		s.health.ended(f)
		if s.health.exchanges.oldest != nil || s.health.exchanges.youngest != nil {
			t.Error("a request that has ended is still under way")
		}
	})
}

// TestExchangesAreForgottenInAnyOrder: the list has those that have not ended, the oldest first.
func TestExchangesAreForgottenInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		var fs exchanges
		all := make([]*exchange, 0, 3)
		for i := range 3 {
			all = append(all, &exchange{begun: time.Unix(int64(i), 0)})
			fs.add(all[i])
		}
		left := map[*exchange]bool{all[0]: true, all[1]: true, all[2]: true}
		for _, i := range order {
			fs.remove(all[i])
			delete(left, all[i])
			n, last := 0, time.Time{}
			for f := fs.oldest; f != nil; f = f.newer {
				if !left[f] || f.begun.Before(last) || f.newer == nil && fs.youngest != f {
					t.Errorf("after %v: the list is wrong", order)
				}
				n, last = n+1, f.begun
			}
			if n != len(left) {
				t.Errorf("after %v: %d are left, want %d", order, n, len(left))
			}
		}
	}
}

// TestWhatExchangesSayOfAServer: when a part of an answer came last, and when there is doubt.
func TestWhatExchangesSayOfAServer(t *testing.T) {
	t.Parallel()
	const least, most = time.Second, 20 * time.Second
	begun := time.Unix(1000, 0)
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	for name, tc := range map[string]struct {
		begun   []int // of each request
		after   []int // so many seconds the last part of its answer arrived, zero for never
		heard   time.Time
		arrived time.Time
		doubt   time.Time
	}{
		"None":              {},
		"NoAnswer":          {begun: []int{0}, after: []int{0}, doubt: at(1)},
		"HeardBefore":       {begun: []int{5}, after: []int{0}, heard: at(0), doubt: at(6)},
		"HeardSince":        {begun: []int{0}, after: []int{0}, heard: at(30), doubt: at(40)},
		"HeardMuchLater":    {begun: []int{0}, after: []int{0}, heard: at(300), doubt: at(320)},
		"TheFirstOfTwo":     {begun: []int{0, 2}, after: []int{0, 0}, doubt: at(1)},
		"TheOldestMayWait":  {begun: []int{0, 31}, after: []int{0, 0}, heard: at(30), doubt: at(32)},
		"Parts":             {begun: []int{0, 1}, after: []int{3, 0}, arrived: at(3), doubt: at(1)},
		"TheLatestPart":     {begun: []int{0, 1, 2}, after: []int{3, 9, 1}, arrived: at(10), doubt: at(1)},
		"AnAnswerWithNoEnd": {begun: []int{0, 1}, after: []int{21, 2}, arrived: at(3), doubt: at(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var xs exchanges
			for i := range tc.begun {
				x := &exchange{begun: at(tc.begun[i])}
				x.arrived.Store(int64(tc.after[i]) * int64(time.Second))
				xs.add(x)
			}
			if got := xs.arrived(most); !got.Equal(tc.arrived) {
				t.Errorf("arrived() = %v, want %v", got, tc.arrived)
			}
			if got := xs.doubtful(tc.heard, least, most); !got.Equal(tc.doubt) {
				t.Errorf("doubtful() = %v, want %v", got, tc.doubt)
			}
		})
	}
}

// TestAMessageAloneIsNoNews: it has ports and times. What is news is another state, or another reason.
func TestAMessageAloneIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "a", nil)
		synctest.Wait()
		s := f.subscribe(false)
		defer f.unsubscribe(s)
		s.next()
		m := f.members["a"]
		told := func(change func()) bool {
			f.mu.Lock()
			change()
			f.mu.Unlock()
			_, told := s.next()
			return told
		}
		engaged := newEngagement(t.Context(), "a")
		m.engagement = engaged
		steps := []struct {
			what   string
			change func()
			news   bool
		}{
			{"a state", func() { m.setStateLocked(Unreachable, ReasonTimeout, "1") }, true},
			{"a message", func() { m.setStateLocked(Unreachable, ReasonTimeout, "2") }, false},
			{"a reason", func() { m.setStateLocked(Unreachable, ReasonRefused, "2") }, true},
			{"a problem", func() { m.explainLocked(ReasonRefused, "1") }, true},
			{"the message of a problem", func() { m.explainLocked(ReasonRefused, "2") }, false},
			{"another problem", func() { m.explainLocked(ReasonDNS, "2") }, true},
		}
		for _, step := range steps {
			if told := told(step.change); told != step.news {
				t.Errorf("%s is told: %v, want %v", step.what, told, step.news)
			}
		}
		if status, _ := f.Status("a"); status.Message != "2" || m.problem.message != "2" {
			t.Errorf("the status has not the latest message: %+v", status)
		}
	})
}

// TestTheFleetCountsTheMembersThatAreDown: each once, until they are Ready, or leave.
func TestTheFleetCountsTheMembersThatAreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "a", nil)
		synctest.Wait()
		m := f.members["a"]
		steps := []struct {
			state  State
			reason string
			down   int64
		}{
			{Connecting, "", 0},
			{Connecting, ReasonRefused, 1},
			{Connecting, ReasonDNS, 1},
			{Ready, "", 0},
			{Unreachable, ReasonTimeout, 1},
			{Unreachable, ReasonRefused, 1},
			{Draining, "", 0},
		}
		for _, step := range steps {
			f.mu.Lock()
			m.setStateLocked(step.state, step.reason, "")
			f.mu.Unlock()
			if down := f.outage.down.Load(); down != step.down {
				t.Errorf("%s (%s): %d are down, want %d", step.state, step.reason, down, step.down)
			}
		}
	})
}
