// Package measure is what the child processes of the benchmarks have in common: one child runs one subject, ours or a
// peer's, does what its parent asks for, and tells what that cost the process.
package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/trace"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Spec says what a child runs.
type Spec struct {
	// Subject names what is run.
	Subject string
	// Kubeconfig is that of the local cluster.
	Kubeconfig []byte
	// Namespace of the Secrets that hold the members' kubeconfigs, or of the objects of a single cluster.
	Namespace string
	// Workers is how many reconciles run at once. Zero stands for the subject's default.
	Workers int
	// Members is how many members there are, of subjects that make them up.
	Members int
	// Replica is the name of the process, Replicas how many share the members, and Leases the namespace of their Leases, of
	// subjects that do.
	Replica, Leases string
	Replicas        int
}

// SecretLabel, with the value "true", marks the Secrets that hold kubeconfigs, under SecretKey. All subjects know them.
const (
	SecretLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig" //nolint:gosec // a label, no secret
	SecretKey   = "kubeconfig"
)

// Running is a subject that was set up.
type Running struct {
	// Run runs it until ctx is done.
	Run func(ctx context.Context) error
	// Engaged says how many members are engaged.
	Engaged func() int
	// Ask sends a request in each member, and does not wait for the answers. It may be nil.
	Ask func(ctx context.Context)
	// Replicas says how many processes share the members, as far as this one knows. It may be nil.
	Replicas func() int
}

// Subject sets up something to measure, which reports what it sees to the probe.
type Subject func(ctx context.Context, cfg *rest.Config, spec Spec, probe *Probe) (Running, error)

// Command is what a child can do.
type Command string

const (
	// Start starts the subject.
	Start Command = "start"
	// Reset forgets what was seen.
	Reset Command = "reset"
	// Wait waits until so many items were seen, and tells when.
	Wait Command = "wait"
	// Latencies tells what the reconciles since reset took.
	Latencies Command = "latencies"
	// Engaged waits until so many members are engaged.
	Engaged Command = "engaged"
	// Look tells how many members are engaged now, and how many replicas are known.
	Look Command = "look"
	// End waits until the subject has ended, which a signal has asked for.
	End Command = "end"
	// Loop switches whether objects are requeued at once when they are reconciled, and what a reconcile takes.
	Loop Command = "loop"
	// Cost tells what was done, and what CPU time was used.
	Cost Command = "cost"
	// TakeSample takes a Sample.
	TakeSample Command = "sample"
	// Profile writes profiles.
	Profile Command = "profile"
	// Ask has a request sent in each member.
	Ask Command = "ask"
	// Trace begins or ends an execution trace.
	Trace Command = "trace"
)

// Request is one line from the parent to the child.
type Request struct {
	Do Command
	// On says whether objects that are reconciled are to be requeued at once, for Loop, and whether Trace begins.
	On bool
	// Takes is how long a reconcile waits, for Loop, of subjects that heed it.
	Takes time.Duration
	// Count is how many items Wait waits for, or how many members Engaged waits for.
	Count int
	// Since makes Reset count only what was written since, in Unix nanoseconds.
	Since int64
	// AtMost bounds a wait.
	AtMost time.Duration
	// Path is where Profile and Trace write, without the end of the names.
	Path string
}

// Answer is one line from the child to the parent. Times are in Unix nanoseconds.
type Answer struct {
	Error string
	// Count is what Wait, Engaged or Look ended with.
	Count int
	// Replicas is how many Look knows.
	Replicas int
	// Started is when start was asked for; First and Last are when the first and the last item were seen.
	Started, First, Last int64
	// Seen are when the items were seen, in order.
	Seen []int64
	// ToReconcile and SinceWrite are what the reconciles since reset took from the event and from the write, for Latencies.
	ToReconcile, SinceWrite []time.Duration
	// Reconciles counts those of objects, and CPU what the process has used, until Now.
	Reconciles, Now int64
	CPU             time.Duration
	// Requests are those of subjects that count them, for Cost.
	Requests Requests
	Sample   Sample
}

// Serve is the main function of a child: it reads a [Spec] and then a [Request] after the other from in, and writes an
// [Answer] to each to out. It returns at the end of in.
func Serve(ctx context.Context, in io.Reader, out io.Writer, subjects map[string]Subject) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := json.NewDecoder(bufio.NewReader(in))
	var spec Spec
	if err := lines.Decode(&spec); err != nil {
		return fmt.Errorf("reading what to run: %w", err)
	}
	c, err := newChild(ctx, spec, subjects)
	if err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	for {
		var r Request
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading what to do: %w", err)
		}
		a, err := c.do(ctx, r)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

type child struct {
	running Running
	probe   *Probe
	started int64
	ended   chan error
	traced  *os.File // where the trace goes that has begun
}

func newChild(ctx context.Context, spec Spec, subjects map[string]Subject) (*child, error) {
	subject := subjects[spec.Subject]
	if subject == nil {
		return nil, fmt.Errorf("there is no subject %q", spec.Subject)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(spec.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &child{probe: newProbe(), ended: make(chan error, 1)}
	if c.running, err = subject(ctx, cfg, spec, c.probe); err != nil {
		return nil, fmt.Errorf("setting up %s: %w", spec.Subject, err)
	}
	return c, nil
}

func (c *child) do(ctx context.Context, r Request) (Answer, error) {
	switch r.Do {
	case Start:
		c.started = time.Now().UnixNano()
		go func() { c.ended <- c.running.Run(ctx) }()
		return Answer{}, nil
	case Reset:
		c.probe.reset(r.Since)
		return Answer{}, nil
	case Wait:
		err := c.until(ctx, r.AtMost, c.probe.reaches(r.Count), func() bool { return c.probe.count() >= r.Count })
		a := c.probe.answer()
		a.Started = c.started
		return a, err
	case Latencies:
		return c.probe.latencies(), nil
	case Engaged:
		err := c.until(ctx, r.AtMost, nil, func() bool { return c.running.Engaged() == r.Count })
		return Answer{Count: c.running.Engaged()}, err
	case Look:
		return c.look(), nil
	case End:
		return Answer{}, c.end(r.AtMost)
	case Loop:
		c.probe.setLoop(r.On, r.Takes)
		return Answer{}, nil
	case Ask:
		c.running.Ask(ctx)
		return Answer{}, nil
	case Cost:
		return c.cost()
	case TakeSample:
		sample, err := takeSample()
		return Answer{Sample: sample}, err
	case Profile:
		return Answer{}, writeProfiles(r.Path)
	case Trace:
		return Answer{}, c.trace(r.On, r.Path)
	default:
		return Answer{}, fmt.Errorf("cannot %q", r.Do)
	}
}

func (c *child) look() Answer {
	a := Answer{Count: c.running.Engaged()}
	if c.running.Replicas != nil {
		a.Replicas = c.running.Replicas()
	}
	return a
}

// end returns once the subject has ended. It is an error if that takes longer.
func (c *child) end(atMost time.Duration) error {
	over := time.NewTimer(atMost)
	defer over.Stop()
	select {
	case err := <-c.ended:
		c.ended <- err
		return err
	case <-over.C:
		return fmt.Errorf("it has not ended after %s", atMost)
	}
}

// cost returns what was used and done so far.
func (c *child) cost() (Answer, error) {
	cpu, err := UsedCPU()
	return Answer{Now: time.Now().UnixNano(), CPU: cpu, Reconciles: c.probe.reconciled(), Requests: c.probe.requests.now()}, err
}

// lookEvery is short beside what is measured. What is seen notes its own time.
const lookEvery = 10 * time.Millisecond

// until returns once done is true, or the time is over. now says when to look, besides now and then. It is an error if the
// subject ends.
func (c *child) until(ctx context.Context, atMost time.Duration, now <-chan struct{}, done func() bool) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	over := time.NewTimer(atMost)
	defer over.Stop()
	for !done() {
		select {
		case <-now:
			now = nil
		case <-look.C:
		case <-over.C:
			return nil
		case err := <-c.ended:
			c.ended <- err
			return fmt.Errorf("it has ended: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
	return nil
}

// Until looks again and again until done is true, which it returns, or false if ctx ends before.
func Until(ctx context.Context, done func() bool) bool {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// trace begins to write path.trace, for go tool trace, or ends it.
func (c *child) trace(on bool, path string) error {
	if !on {
		trace.Stop()
		return c.traced.Close()
	}
	file, err := os.Create(path + ".trace") //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	c.traced = file
	return trace.Start(file)
}
