package measure

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// StampKey is the annotation that holds when an object was written, in Unix nanoseconds.
const StampKey = "bench.fleet-runtime.dev/written"

// Probe notes what a subject sees. It is safe for concurrent use.
type Probe struct {
	requests requests

	mu          sync.Mutex // guards what follows
	since       int64
	seen        map[string]struct{}
	at          []int64 // when they were seen
	first, last time.Time
	wanted      int                        // items, of which reached tells
	reached     chan struct{}              // closed when so many were seen, nil if nobody waits
	events      map[client.ObjectKey]event // of objects that were not reconciled since
	toReconcile []time.Duration
	sinceWrite  []time.Duration
	reconciles  int64
	loop        bool
	takes       time.Duration
}

type event struct {
	at      time.Time
	written int64
}

func newProbe() *Probe {
	return &Probe{seen: map[string]struct{}{}, events: map[client.ObjectKey]event{}}
}

// Member notes that an object of a member was reconciled.
func (p *Probe) Member(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(name, time.Now())
}

// Predicate notes when an event comes. Every event passes.
func (p *Probe) Predicate() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool {
		e := event{at: time.Now(), written: stamp(obj)}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events[client.ObjectKeyFromObject(obj)] = e
		return true
	})
}

// Object notes that an object was reconciled, whose events go through [Probe.Predicate], and returns what the reconciler
// shall return.
func (p *Probe) Object(key client.ObjectKey) (result reconcile.Result) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reconciles++
	if p.loop {
		result.RequeueAfter = 1 // at once
	}
	e, ok := p.events[key]
	if !ok || e.written < p.since {
		return result
	}
	delete(p.events, key)
	p.noteLocked(key.Name, now)
	p.toReconcile = append(p.toReconcile, now.Sub(e.at))
	p.sinceWrite = append(p.sinceWrite, now.Sub(time.Unix(0, e.written)))
	return result
}

func (p *Probe) noteLocked(item string, now time.Time) {
	if _, known := p.seen[item]; known {
		return
	}
	p.seen[item] = struct{}{}
	p.last = now
	p.at = append(p.at, now.UnixNano())
	if len(p.seen) == 1 {
		p.first = now
	}
	p.tellLocked()
}

func (p *Probe) tellLocked() {
	if p.reached != nil && len(p.seen) >= p.wanted {
		close(p.reached)
		p.reached = nil
	}
}

// reaches returns what is closed when so many items were seen. Only the last that was asked for is.
func (p *Probe) reaches(count int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	reached := make(chan struct{})
	p.wanted, p.reached = count, reached
	p.tellLocked()
	return reached
}

func (p *Probe) reset(since int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.seen, p.at, p.toReconcile, p.sinceWrite = since, map[string]struct{}{}, nil, nil, nil
}

func (p *Probe) setLoop(on bool, takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loop, p.takes = on, takes
}

// Takes returns how long a reconcile is to wait.
func (p *Probe) Takes() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takes
}

func (p *Probe) reconciled() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reconciles
}

func (p *Probe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seen)
}

func (p *Probe) answer() Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Answer{Count: len(p.seen), First: p.first.UnixNano(), Last: p.last.UnixNano(), Seen: slices.Clone(p.at)}
}

func (p *Probe) latencies() Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Answer{ToReconcile: p.toReconcile, SinceWrite: p.sinceWrite}
}

// stamp returns when the object was written, zero if it does not say.
func stamp(obj client.Object) (written int64) {
	_, _ = fmt.Sscan(obj.GetAnnotations()[StampKey], &written)
	return written
}
