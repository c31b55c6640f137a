package fleet

import (
	"context"
	"net/http"
)

// Observer follows what the fleet does, such as for traces. Its methods are called by many goroutines at once, and must not wait.
type Observer interface {
	// Begin is called when a step begins, and what it returns when the step has ended, with an error if it did not work.
	Begin(step Step) (end func(err error))
	// Transport returns what carries the requests of the clients, caches and guests of a member, which is rt or wraps it. Each
	// request comes by it once, however often it is sent. Questions of the fleet's own do not. It is not called for clusters that a
	// provider has made.
	Transport(name ClusterName, rt http.RoundTripper) http.RoundTripper
}

// Step is something that the fleet does with a member, and that takes time.
type Step struct {
	Member ClusterName
	Kind   StepKind
	// Why is the reason, for steps that end an engagement.
	Why error
}

// StepKind is what is done in a [Step].
type StepKind string

const (
	// StepConnect is an attempt to connect a member, with the wait for its turn.
	StepConnect StepKind = "connect"
	// StepRotate is an attempt to take over new credentials in place. If it shows that the member must be connected anew, it has an
	// error, and an attempt to connect follows.
	StepRotate StepKind = "rotate"
	// StepDrain is from the end of an engagement until nothing runs for it any more.
	StepDrain StepKind = "drain"
	// StepHandOver is the drain of a member that another replica is to work on.
	StepHandOver StepKind = "hand-over"
)

// observe tells the observer, if there is one, that a step begins. The returned function must be called when it ends.
func (m *member) observe(kind StepKind, why error) (end func(err error)) {
	if m.fleet.opts.Observer == nil {
		return func(error) {}
	}
	return m.fleet.opts.Observer.Begin(Step{Member: m.name, Kind: kind, Why: why})
}

// observeDrain is observe for an engagement that was ended.
func (m *member) observeDrain(e *Engagement) (end func(err error)) {
	m.fleet.mu.Lock()
	kind := StepDrain
	if !m.withdrawn && m.share.over != nil {
		kind = StepHandOver
	}
	m.fleet.mu.Unlock()
	return m.observe(kind, context.Cause(e.ctx))
}

// transport is what carries the requests of the member's clients.
func (m *member) transport(over *wire) http.RoundTripper {
	if m.fleet.opts.Observer == nil {
		return over
	}
	return m.fleet.opts.Observer.Transport(m.name, over)
}
