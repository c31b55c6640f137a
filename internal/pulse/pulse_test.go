package pulse

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls writes down what a seat is told, and when.
type calls struct {
	mu   sync.Mutex
	done []string
	from time.Time
}

func (c *calls) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, time.Since(c.from).String()+" "+what)
}

func (c *calls) Yield(to string) { c.note("yield to " + to) }
func (c *calls) Reclaim()        { c.note("reclaim") }

func TestAReconcileYieldsWhileItOnlyWaits(t *testing.T) {
	pass := func(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
	cases := map[string]struct {
		reason string
		do     func(p *Pulse)
		want   string
	}{
		"Answered": {"An answer comes in time.", func(p *Pulse) { p.Wait("a"); pass(9); p.Heard("a"); pass(50) }, ""},
		"Silent":   {"No answer comes in time.", func(p *Pulse) { p.Wait("a"); pass(30); p.Heard("a"); pass(50) }, "10ms yield to a; 30ms reclaim"},
		"Bytes":    {"A body comes in pieces.", func(p *Pulse) { sequence(p, 20, func() { pass(8) }) }, ""},
		"Again": {"The second answer does not come in time.", func(p *Pulse) {
			p.Wait("a")
			pass(8)
			p.Heard("a")
			p.Wait("a")
			pass(30)
			p.Heard("a")
		}, "18ms yield to a; 38ms reclaim"},
		"Idle":      {"It asks nobody.", func(*Pulse) { pass(50) }, ""},
		"Working":   {"It works after the answer.", func(p *Pulse) { p.Wait("a"); p.Heard("a"); pass(50) }, ""},
		"TwoSilent": {"It yields once for both, and reclaims at the first answer.", func(p *Pulse) { p.Wait("a"); pass(5); p.Wait("a"); pass(25); p.Heard("a") }, "15ms yield to a; 30ms reclaim"},
		"OneIsLeft": {"After the first answer the other cluster is silent still.", func(p *Pulse) {
			p.Wait("a")
			p.Wait("a")
			pass(30)
			p.Heard("a")
			pass(30)
			p.Heard("a")
		}, "10ms yield to a; 30ms reclaim; 40ms yield to a; 60ms reclaim"},
		"AsksAnother":  {"To ask once more is to work.", func(p *Pulse) { p.Wait("a"); pass(20); p.Wait("b"); pass(5); p.Heard("b") }, "10ms yield to a; 20ms reclaim"},
		"Elsewhere":    {"It waits for another cluster.", func(p *Pulse) { p.Wait("b"); pass(20); p.Heard("b") }, "10ms yield to b; 20ms reclaim"},
		"OwnAndOther":  {"It waits for its own cluster too.", func(p *Pulse) { p.Wait("a"); p.Wait("b"); pass(20) }, "10ms yield to a"},
		"OwnThenOther": {"Its own cluster has answered.", func(p *Pulse) { p.Wait("a"); p.Wait("b"); pass(5); p.Heard("a"); pass(20) }, "15ms yield to b"},
		"Ended": {"Nothing is said after the end.", func(p *Pulse) {
			p.Wait("a")
			pass(5)
			p.End()
			pass(50)
			p.Heard("a")
			p.Wait("a")
			pass(50)
		}, ""},
		"EndedSilent": {"Nor that it waits no longer.", func(p *Pulse) { p.Wait("a"); pass(20); p.End(); p.Heard("a") }, "10ms yield to a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seat := &calls{from: time.Now()}
				p := begin(t.Context(), seat)
				defer p.End()
				tc.do(p)
				synctest.Wait()
				seat.mu.Lock()
				defer seat.mu.Unlock()
				if got := strings.Join(seat.done, "; "); got != tc.want {
					t.Errorf("%s The seat was told %q, want %q", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestNoTimerRunsOnceNothingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t.Context(), &calls{from: time.Now()})
		defer p.End()
		p.Wait("a")
		<-time.After(2 * SilentAfter)
		p.Heard("a")
		if p.armed {
			t.Error("a timer is set")
		}
	})
}

func begin(ctx context.Context, seat Seat) *Pulse {
	p := &Pulse{}
	p.Begin(ctx, "a", seat)
	return p
}

func sequence(p *Pulse, n int, between func()) {
	for range n {
		p.Wait("a")
		between()
		p.Heard("a")
	}
}

func TestThePulseIsFoundInContextsOfTheReconcile(t *testing.T) {
	p := begin(context.WithValue(t.Context(), calls{}.from, "value"), &calls{})
	ctx, cancel := context.WithCancel(p)
	defer cancel()
	if From(ctx) != p {
		t.Error("the pulse is not found in a context that comes of its own")
	}
	if From(t.Context()) != nil {
		t.Error("a pulse is found where there is none")
	}
	From(t.Context()).Wait("a")
	From(t.Context()).Heard("a")
	From(t.Context()).End()
	if ctx.Value(calls{}.from) != "value" {
		t.Error("other values are lost")
	}
}

func BenchmarkWait(b *testing.B) {
	p := begin(b.Context(), &calls{})
	b.ReportAllocs()
	for b.Loop() {
		p.Wait("a")
		p.Heard("a")
	}
}

func BenchmarkReconcile(b *testing.B) {
	seat := &calls{}
	b.ReportAllocs()
	for b.Loop() {
		p := begin(b.Context(), seat)
		p.Wait("a")
		p.Heard("a")
		p.End()
	}
}
