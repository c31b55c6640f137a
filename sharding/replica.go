package sharding

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// Replica is one of several that share the members of a fleet. It implements [fleet.Ownership]. Its methods are safe for concurrent
// use, but Run is called once.
type Replica struct {
	opts  Options
	times times
	clock clock
	log   logr.Logger
	hub   *hub // set by Run
	event *events
	count *counts

	news signal // the fleet is to ask again
	arm  signal // wakeAt is earlier than before
	work signal // something may have to be decided

	mu      sync.Mutex // guards what follows; nothing remote is awaited while it is held
	running bool
	session *session // nil before the first
	table   heldTable
	newest  int64 // the greatest Gen of any table that was seen
	// watchedTable is the version of the table that the watch has shown last. Unlike what is read or written, it comes after all that
	// was written to sessions before.
	watchedTable string
	peers        map[string]*peer // by session
	// elsewhere has the sessions of other pools, and pools how many members those have, with the local cluster.
	elsewhere map[string]*peer
	pools     map[string]int
	members   map[fleet.ClusterName]member
	buckets   []bucket        // empty before there is a table
	tenures   int             // that were not released
	costs     *protocol.Costs // nil if they are not measured
	kin       kin
	settling  settling
	wakeAt    time.Duration // by the monotonic clock, when the fleet is to ask again; 0 for never

	watching    instant            // since when the watch runs
	watchAnew   context.CancelFunc // nil while that is under way
	watchFailed string             // why the last list or watch did not begin, empty if it did

	inputs, planned uint64  // how often what plans are made of has changed: until now, and until the last plan
	planFrom        instant // when the first change came that is not planned, or the table changed
	suspendedSince  time.Time
	problem         string // why nothing can be decided, empty if that is not so
}

var _ fleet.Ownership = (*Replica)(nil)

// New returns a replica. It takes no part before it runs.
func New(opts Options) (*Replica, error) {
	return newReplica(opts, systemClock{time.Now()})
}

func newReplica(opts Options, c clock) (*Replica, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Replica{
		opts: opts, times: timesOf(opts.LeaseDuration), clock: c, log: opts.Logger.WithValues("sharding", opts.ID),
		news: newSignal(), arm: newSignal(), work: newSignal(), count: newCounts(),
		peers: map[string]*peer{}, elsewhere: map[string]*peer{}, members: map[fleet.ClusterName]member{}, pools: map[string]int{},
		settling: settling{after: opts.Settle}, kin: kin{program: programPath(), patient: differAtMost * opts.LeaseDuration},
	}
	if opts.Measure {
		r.costs = protocol.NewCosts(protocol.DefaultPace())
	}
	return r, nil
}

var errRunning = errors.New("sharding: the replica runs already, or has run: make a new one")

// Run implements [fleet.Ownership].
func (r *Replica) Run(ctx context.Context, local cluster.Cluster, changed func()) error {
	if err := r.begin(local); err != nil {
		return err
	}
	defer r.hub.close()
	defer r.event.end()
	defer r.exportMetrics()()

	// What renews and watches goes on while members are given up.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer end()
	group.Go(func() { r.watch(life) })
	group.Go(func() { r.herald(life, changed) })

	pauses := retry.Pauses(r.times.try)
	for ctx.Err() == nil {
		s := r.newSession()
		if err := r.open(ctx, s); err != nil {
			r.stuck(err)
			retry.Pause(ctx, &pauses, nil)
			continue
		}
		pauses = retry.Pauses(r.times.try)
		if r.serve(ctx, life, s) {
			return nil
		}
	}
	r.awaitTenures()
	return nil
}

func (r *Replica) begin(local cluster.Cluster) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return errRunning
	}
	r.running = true
	var err error
	if r.hub, err = newHub(local.GetConfig(), r.opts.Namespace, r.clock, r.times.try); err != nil {
		return err
	}
	r.event = newEvents(local, r.opts, r.log)
	return nil
}

// newSession prepares a session of a new name.
func (r *Replica) newSession() *session {
	name := r.opts.newSession(utilrand.String(lengthOfRandom))
	pod, _ := inpod.Name() // empty outside a pod
	return &session{
		name: name, line: r.hub.renewing, clock: r.clock, times: r.times, log: r.log,
		hurry: newSignal(), sentAt: map[int64]instant{}, told: r.sessionChanged,
		described: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.opts.Namespace, Name: r.opts.leaseName(name), Labels: map[string]string{labelSharding: r.opts.ID},
				Annotations: map[string]string{
					annotationPool: r.opts.Pool, annotationRevision: r.opts.Revision, annotationCapacity: strconv.Itoa(r.opts.Capacity),
					annotationProgram: r.kin.program, AnnotationPod: pod,
				},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity:       new(name),
				LeaseDurationSeconds: new(int32(r.times.lease / time.Second)), //nolint:gosec // ten minutes at most
				AcquireTime:          new(metav1.NewMicroTime(r.clock.now().wall)),
			},
		},
	}
}

// open creates the session's Lease, after the table.
func (r *Replica) open(ctx context.Context, s *session) error {
	if err := r.knowTable(ctx, nil); err != nil {
		return err
	}
	r.mu.Lock()
	s.described.Annotations[annotationTable] = string(r.table.lease.UID)
	if r.session = s; r.costs != nil {
		r.costs.Begin()
	}
	r.mu.Unlock()
	pauses := retry.Pauses(r.times.try)
	for {
		err := s.open(context.WithoutCancel(ctx)) // for a moment: one that is cancelled may have worked
		if err == nil || s.over() != nil {
			return err
		}
		if ctx.Err() != nil {
			r.end(ctx, s) // it may be there all the same
			return err
		}
		r.stuck(err)
		retry.Pause(ctx, &pauses, nil)
	}
}

// serve takes part with a session until that is lost, or until the replica has left after ctx is done, which it reports.
func (r *Replica) serve(ctx, life context.Context, s *session) (left bool) {
	renewing, stop := context.WithCancel(life)
	var renewer sync.WaitGroup
	renewer.Go(func() { s.run(renewing) })
	l := &progress{Replica: r, done: ctx.Done(), begun: r.clock.now()}
	for s.over() == nil && !l.left {
		again := r.turn(life, s, l)
		l.await(s, min(again, r.checkWatch(s)))
	}
	stop()
	renewer.Wait()
	if lost := s.over(); lost != nil {
		r.log.Info("The session is over; this replica works on no members until it has another", "session", s.name, "reason", lost.Error())
		r.count.lost.Inc()
		return false
	}
	if l.told {
		r.end(life, s)
	}
	return true
}

// end deletes the Lease of a session that nobody needs any more, whether ctx is done or not.
func (r *Replica) end(ctx context.Context, s *session) {
	if err := s.end(context.WithoutCancel(ctx)); err != nil {
		r.log.Info("Could not delete the session, which others do later", "error", oneline.Text(err.Error(), maxError))
	}
}

// sessionChanged follows a session that was lost, or is suspended no more.
func (r *Replica) sessionChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.session; s != nil && s.over() != nil {
		for i := range r.buckets {
			r.endLocked(&r.buckets[i], s.over())
		}
	}
	r.news.send()
	r.work.send()
}

// stuck notes why nothing can be decided, nil if it can.
func (r *Replica) stuck(err error) {
	text := ""
	if err != nil {
		text = oneline.Text(err.Error(), maxError)
	}
	r.mu.Lock()
	before := r.problem
	r.problem = text
	r.mu.Unlock()
	switch text {
	case before:
	case "":
		r.log.Info("Members can be shared again")
	default:
		r.log.Info("Members cannot be shared now; what this replica owns, it keeps while its session is valid",
			"reason", fleet.ReasonOf(err), "error", text)
	}
}

// awaitTenures waits until nothing runs under any tenure of sessions that were lost.
func (r *Replica) awaitTenures() {
	for r.tenureCount() > 0 {
		<-r.work
	}
}

func (r *Replica) tenureCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenures
}

var errTableGone = errors.New("the table of who owns what was deleted, or restored from a backup")

// errProblem says that the table cannot be read.
func errProblem(name string, problem error) error {
	return fmt.Errorf("the Lease %s holds no table: %w; nothing moves until it does: restore it, or delete it, which stops all replicas for a moment",
		name, problem)
}
