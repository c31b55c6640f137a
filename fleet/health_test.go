package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestAStateChangesOnlyAfterSeveralProbesInARow(t *testing.T) {
	cases := map[string]struct {
		reason string
		probes string // x fails, o works
		states string // U or R after each
	}{
		"Steady":     {"Probes that work change nothing.", "oooo", "RRRR"},
		"Blip":       {"Fewer failures than the threshold change nothing.", "xxoxxo", "RRRRRR"},
		"Lost":       {"The third failure in a row is believed.", "xxxx", "RRUU"},
		"Back":       {"The second success in a row is believed.", "xxxoo", "RRUUR"},
		"Marginal":   {"A link that works now and then does not flap.", "xxxoxoxox", "RRUUUUUUU"},
		"LostAgain":  {"Counting starts anew after a change.", "xxxooxxx", "RRUURRRU"},
		"WorksAgain": {"Failures before a success do not count.", "xxoxx", "RRRRR"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHealth(Options{}.withDefaults().Health, nil, nil, nil)
			var got strings.Builder
			for _, probe := range tc.probes {
				var err error
				if probe == 'x' {
					err = errors.New("no answer")
				}
				h.turnLocked(err, 1)
				got.WriteString(string(h.state[0]))
			}
			if diff := cmp.Diff(tc.states, got.String()); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWhatAProbeCounts: one that has no answer speaks for all that began after it, and one that is refused for itself. A part of
// another answer excuses silence alone, and only in a member that is Ready.
func TestWhatAProbeCounts(t *testing.T) {
	for name, c := range map[string]struct {
		state    State
		err      error
		silence  bool
		answered time.Duration // when something was answered, from the beginning of the first probe
		inRow    int
		underWay int  // of the same round
		redial   bool // the connections shall be closed
	}{
		"silence":                   {Ready, context.DeadlineExceeded, true, -time.Second, 2, 0, false},
		"silence after an answer":   {Ready, context.DeadlineExceeded, true, time.Second, 0, 0, false},
		"refused":                   {Ready, errNo, false, -time.Second, 1, 1, false},
		"refused after an answer":   {Ready, errNo, false, time.Second, 1, 1, false},
		"answered":                  {Ready, nil, false, -time.Second, 0, 0, false},
		"silence, and Unreachable":  {Unreachable, context.DeadlineExceeded, true, time.Second, 0, 0, true},
		"refused, and Unreachable":  {Unreachable, errNo, false, time.Second, 0, 0, false},
		"answered, and Unreachable": {Unreachable, nil, false, -time.Second, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealth(Options{}.withDefaults().Health, &probed{}, func(State, error) {}, nil)
			h.state = c.state
			h.round.underWay, h.round.first = 2, time.Now()
			h.answered = h.round.first.Add(c.answered)
			before := h.round.n
			if redial := h.countLocked(c.err, c.silence); redial != c.redial {
				t.Errorf("the connections shall be closed: %t, want %t", redial, c.redial)
			}
			same := h.round.n == before
			if h.state != c.state || h.inRow != c.inRow || h.round.underWay != c.underWay || same != (c.underWay > 0) {
				t.Errorf("it is %s, with %d in a row and %d under way of the same round: %t", h.state, h.inRow, h.round.underWay, same)
			}
		})
	}
}

// TestProbesThatAreUnderWaySayNothingOfANewState: they were asked about the one before.
func TestProbesThatAreUnderWaySayNothingOfANewState(t *testing.T) {
	h := newHealth(Options{}.withDefaults().Health, &probed{}, func(State, error) {}, nil)
	h.inRow, h.round.underWay = h.opts.FailureThreshold-1, 2
	before := h.round.n
	h.countLocked(errNo, false)
	if h.state != Unreachable || h.round.n == before || h.round.underWay != 0 {
		t.Errorf("it is %s, with %d under way of the same round: %t", h.state, h.round.underWay, h.round.n == before)
	}
}

// TestAnIdleMemberIsNotGivenUpAtOnce: its probes follow at the interval of those that fail, whether they have an answer or not.
func TestAnIdleMemberIsNotGivenUpAtOnce(t *testing.T) {
	for name, p := range map[string]*probed{"refused": {broken: errNo}, "no answer": {hangs: make(chan struct{})}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if p.hangs != nil {
					p.hangs = make(chan struct{})
					defer close(p.hangs)
				}
				h := p.watch(t)
				for p.asked() == 0 {
					<-time.After(100 * time.Millisecond)
					synctest.Wait()
				}
				for n := 1; n < h.opts.FailureThreshold; n++ {
					p.is(t, n)
					<-time.After(h.opts.RetryInterval)
				}
			})
		})
	}
}

// TestAnIntervalIsNeverLongerThanWasAskedFor, and at most a tenth shorter.
func TestAnIntervalIsNeverLongerThanWasAskedFor(t *testing.T) {
	h := newHealth(Options{}.withDefaults().Health, &probed{}, nil, nil)
	for range 1000 {
		h.drawIntervalLocked()
		if most := h.opts.ProbeInterval; h.interval > most || h.interval < most*9/10 {
			t.Fatalf("the interval is %s, want at most %s", h.interval, most)
		}
	}
}

// TestRequestsDoNotPutOffTheProbe that the first of them asks for, when none has an answer.
func TestRequestsDoNotPutOffTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		for range 6 {
			h.sent()
			<-time.After(h.opts.RetryInterval / 10)
		}
		p.is(t, 1)
	})
}

// probed stands for an API server in tests of health: it answers probes or does not, and has what came of it.
type probed struct {
	mu       sync.Mutex // guards what follows
	broken   error
	another  error         // why what answers is not the member's cluster
	arriving bool          // bytes arrive, slowly
	hangs    chan struct{} // probes answer when it is closed, whatever becomes of their contexts; nil for at once
	probes   int
	verified int // how often it was asked which cluster it is
	redials  int
	states   []State
	why      error // what was reported last
}

// asked returns how many probes there were.
func (p *probed) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes
}

func (p *probed) probe(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes++
	if hangs := p.hangs; hangs != nil {
		p.mu.Unlock()
		<-hangs
		p.mu.Lock()
	}
	return p.broken
}

func (p *probed) verify(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verified++
	return p.another
}

func (p *probed) redial() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redials++
}

func (p *probed) heard() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arriving {
		return time.Now()
	}
	return time.Time{}
}

func (p *probed) watch(t *testing.T) *health {
	t.Helper()
	h, _ := p.watchUntil(t.Context(), t)
	return h
}

// watchUntil is watch until ctx is done. wait is that of the health.
func (p *probed) watchUntil(ctx context.Context, t *testing.T) (h *health, wait func()) {
	t.Helper()
	h = newHealth(Options{}.withDefaults().Health, p, func(s State, why error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.why = why; (why == nil) != (s == Ready) {
			t.Errorf("it is %s because of %v", s, why)
		}
		if len(p.states) == 0 || p.states[len(p.states)-1] != s {
			p.states = append(p.states, s)
		}
	}, func() {})
	return h, h.watch(ctx)
}

func (p *probed) setAnother(another error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.another = another
}

func (p *probed) setBroken(broken error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

// is checks what has happened, once everything has come to rest.
func (p *probed) is(t *testing.T, probes int, states ...State) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probes != probes {
		t.Errorf("%d probes, want %d", p.probes, probes)
	}
	if diff := cmp.Diff(states, p.states); diff != "" {
		t.Errorf("states (-want, +got):\n%s", diff)
	}
}

func TestTrafficThatWorksNeedsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		for range 60 {
			<-time.After(time.Second)
			h.worked()
		}
		p.is(t, 0)
	})
}

func TestSilenceIsProbedAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		p.watch(t)
		<-time.After(61 * time.Second)
		synctest.Wait()
		if p.probes < 6 || p.probes > 7 { // the first comes after half an interval or more
			t.Errorf("%d probes in 61 seconds, want one in about 10", p.probes)
		}
		if p.verified > 0 {
			t.Errorf("a member that is Ready was asked %d times which cluster it is", p.verified)
		}
	})
}

func TestEventsOfAWatchNeedNoProbeButAnswerNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		for range 53 {
			<-time.After(time.Second)
			h.heardEvent()
		}
		p.is(t, 0)
		for range 8 {
			<-time.After(time.Second)
			h.heardEvent()
		}
		p.is(t, 1) // one in six intervals, since events alone do not show that requests arrive
		for range 45 {
			<-time.After(time.Second)
			h.heardEvent()
		}
		p.is(t, 1)
		p.setBroken(errors.New("refused"))
		h.failed()
		for range 33 {
			<-time.After(100 * time.Millisecond)
			h.heardEvent()
		}
		p.is(t, 5, Unreachable)
	})
}

func TestAFailedRequestIsFollowedByProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		p.setBroken(errors.New("refused"))
		h := p.watch(t)
		for range 100 { // requests that fail by the dozen must not hasten the verdict
			h.failed()
			synctest.Wait()
		}
		p.is(t, 1)
		<-time.After(2500 * time.Millisecond)
		p.is(t, 3, Unreachable)

		restored := h.isRestored()
		p.setBroken(nil)
		<-restored
		p.is(t, 5, Unreachable, Ready)
	})
}

func TestAMemberThatDoesNotAnswerIsDialledAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		arriving bool
		redials  int
	}{
		"Timeout, once in an outage": {err: context.DeadlineExceeded, redials: 1},
		"Slow":                       {err: context.DeadlineExceeded, arriving: true, redials: 0},
		"Refused":                    {err: errors.New("refused"), redials: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probed{arriving: tc.arriving}
				p.setBroken(tc.err)
				p.watch(t).failed()
				<-time.After(4500 * time.Millisecond) // five probes, the third of which makes it Unreachable
				p.is(t, 5, Unreachable)
				if p.redials != tc.redials {
					t.Errorf("dialled anew %d times, want %d", p.redials, tc.redials)
				}
			})
		})
	}
}

// TestRefusedCredentialsAndCertificatesAreTold: others may be in a file, or to be had from the provider.
func TestRefusedCredentialsAndCertificatesAreTold(t *testing.T) {
	cases := map[string]struct {
		err  error
		want bool
	}{
		"Unauthorized": {apierrors.NewUnauthorized("no"), true},
		"Certificate":  {&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, true},
		"Refused":      {errors.New("refused"), false},
		"Answered":     {nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			told := false
			h := newHealth(Options{}.withDefaults().Health, &probed{}, func(State, error) {}, func() { told = true })
			h.judge(0, tc.err, false)
			if told != tc.want {
				t.Errorf("told: %v, want %v", told, tc.want)
			}
		})
	}
}

func TestEachOutageIsDialledAnewOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		for outage := 1; outage <= 2; outage++ {
			p.setBroken(context.DeadlineExceeded)
			h.failed()
			<-time.After(time.Minute)
			restored := h.isRestored()
			if isClosed(restored) {
				t.Errorf("it is restored in outage %d", outage)
			}
			p.setBroken(nil)
			<-restored
			p.mu.Lock()
			if p.redials != outage {
				t.Errorf("dialled anew %d times in %d outages", p.redials, outage)
			}
			p.mu.Unlock()
		}
	})
}

func TestAnotherClusterDoesNotMakeAMemberReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{another: &anotherClusterError{known: "a", now: "b"}}
		p.setBroken(errors.New("refused"))
		h := p.watch(t)
		h.failed()
		<-time.After(4500 * time.Millisecond)
		p.is(t, 5, Unreachable)
		p.setBroken(nil)                      // what answers now is another cluster
		<-time.After(3900 * time.Millisecond) // 4, at pauses of 0.9 to 1.1 seconds
		p.is(t, 9, Unreachable)

		restored := h.isRestored()
		p.setAnother(nil)
		<-restored
		p.is(t, 11, Unreachable, Ready)
	})
}

func TestAClusterThatIsAnotherIsNotReadyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		begin := time.Now()
		h.lost(&anotherClusterError{known: "a", now: "b"})
		p.is(t, 0, Unreachable)
		<-h.isRestored() // the probes find the member's own cluster again
		p.is(t, 2, Unreachable, Ready)
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("that was found out after %s, want two pauses of about a second", took)
		}
	})
}

// TestAProbeThatIsUnderWayCountsForNothingThatIsNewsSince: another cluster was found, or a request was answered.
func TestAProbeThatIsUnderWayCountsForNothingThatIsNewsSince(t *testing.T) {
	news := map[string]struct {
		broken error // what the probe that is under way says
		tell   func(h *health)
		states []State
	}{
		"another cluster":         {nil, func(h *health) { h.lost(&anotherClusterError{known: "a", now: "b"}) }, []State{Unreachable}},
		"a request was answered":  {errors.New("refused"), func(h *health) { h.worked() }, nil},
		"the state changed twice": {errors.New("refused"), func(h *health) { h.lost(errors.New("it is another")); h.turnLocked(nil, 2) }, []State{Unreachable}},
	}
	for name, tc := range news {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probed{hangs: make(chan struct{})}
				p.setBroken(tc.broken)
				h := p.watch(t)
				h.failed()
				synctest.Wait()
				tc.tell(h)
				close(p.hangs)
				p.is(t, 1, tc.states...)
				if h.inRow != 0 || h.round.underWay != 0 {
					t.Errorf("%d in a row, %d under way", h.inRow, h.round.underWay)
				}
			})
		})
	}
}

// TestARequestThatIsAnsweredSpeaksAgainstTheProbesBefore of a member that is Ready. One that is Unreachable is believed by probes
// alone: what is answered may have been asked before.
func TestARequestThatIsAnsweredSpeaksAgainstTheProbesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		p.setBroken(errors.New("refused"))
		h := p.watch(t)
		h.failed()
		<-time.After(1500 * time.Millisecond)
		p.is(t, 2)
		h.worked()
		h.failed()
		<-time.After(2200 * time.Millisecond)
		p.is(t, 4)
		<-time.After(time.Second)
		p.is(t, 5, Unreachable)

		p.setBroken(nil)
		for p.asked() < 6 {
			<-time.After(100 * time.Millisecond)
			synctest.Wait()
		}
		h.worked()
		<-time.After(1500 * time.Millisecond)
		p.is(t, 7, Unreachable, Ready)
	})
}

func TestAMemberIsAskedAtOnceWhenThereIsNewsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		h.pause = func(time.Duration) time.Duration { return time.Hour }
		h.askNow()
		p.is(t, 0) // it is Ready
		p.setBroken(errors.New("refused"))
		h.failed()
		<-time.After(time.Minute)
		p.is(t, 3, Unreachable)
		p.setBroken(nil)
		h.askNow()
		p.is(t, 4, Unreachable)
		<-time.After(1500 * time.Millisecond)
		p.is(t, 5, Unreachable, Ready) // the second follows soon

		h.lost(errNo)
		p.mu.Lock()
		p.hangs = make(chan struct{})
		p.mu.Unlock()
		h.askNow()
		p.is(t, 6, Unreachable, Ready, Unreachable)
		h.askNow()
		p.is(t, 7, Unreachable, Ready, Unreachable) // it does not wait for the one that is under way
		close(p.hangs)
	})
}

func TestWhyAMemberIsUnreachableIsToldAsItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		p.setBroken(errors.New("refused"))
		p.watch(t).failed()
		<-time.After(2500 * time.Millisecond)
		p.is(t, 3, Unreachable)
		other := errors.New("no route")
		p.setBroken(other)
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !errors.Is(p.why, other) {
			t.Errorf("it is Unreachable because of %v, want %v", p.why, other)
		}
	})
}

func TestNothingIsProbedAfterTheEndOfAnEngagement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{hangs: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		h, wait := p.watchUntil(ctx, t)
		h.failed()
		p.is(t, 1)
		cancel()
		<-time.After(time.Minute)
		p.is(t, 1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			wait()
		}()
		synctest.Wait()
		if isClosed(ended) {
			t.Error("the health has ended while a probe is under way")
		}
		close(p.hangs)
		<-ended
		h.failed()
		<-time.After(time.Minute)
		p.is(t, 1)
	})
}

func TestWhoWaitsForAMemberWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probed{}
		h := p.watch(t)
		h.awaitReady(t.Context())
		h.lost(errors.New("it is another"))
		p.setBroken(errors.New("refused"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h.awaitReady(ctx)
		if ctx.Err() == nil {
			t.Error("an Unreachable member was taken to be Ready")
		}
		p.setBroken(nil)
		h.awaitReady(t.Context())
		if h.state != Ready {
			t.Errorf("the member is %s", h.state)
		}
	})
}
