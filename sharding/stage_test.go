package sharding

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// leaseOfTests is short, and long enough for a machine that is busy.
const leaseOfTests = 3 * time.Second

// scene is some replicas that share members, in a namespace of a real API server.
type scene struct {
	t         *testing.T
	cp        *mctest.ControlPlane
	namespace string
	lease     time.Duration
	ledger    *ledger
	config    *rest.Config  // of replicas that are started
	pace      protocol.Pace // at which replicas measure that are started

	mu      sync.Mutex // guards what follows
	members map[fleet.ClusterName]map[string]string
	costs   map[fleet.ClusterName]time.Duration // of a reconcile
	actors  []*actor
}

func newScene(t *testing.T, members int) *scene {
	t.Helper()
	cp := pool.Share(t, mctest.Options{})
	return newSceneIn(t, cp, members)
}

func newSceneIn(t *testing.T, cp *mctest.ControlPlane, members int) *scene {
	t.Helper()
	s := &scene{
		t: t, cp: cp, namespace: cp.CreateNamespace(t), config: cp.Config(), lease: leaseOfTests, ledger: &ledger{
			t: t, last: map[fleet.ClusterName]*written{}, running: map[fleet.ClusterName]map[*tenure]bool{},
		},
		members: map[fleet.ClusterName]map[string]string{}, costs: map[fleet.ClusterName]time.Duration{}, pace: protocol.DefaultPace(),
	}
	for i := range members {
		s.members[fleet.ClusterName(fmt.Sprintf("m%03d", i))] = nil
	}
	t.Cleanup(s.end)
	return s
}

// end ends the replicas that still run, whatever was done to them.
func (s *scene) end() {
	var ending sync.WaitGroup
	for _, a := range s.all() {
		a.faults.all(pass)
		a.worker.revive()
		ending.Go(a.stop)
	}
	ending.Wait()
}

func (s *scene) all() []*actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.actors)
}

func (s *scene) names() map[fleet.ClusterName]map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.members)
}

// cost is how long a reconcile of a member takes, as is said.
func (s *scene) cost(name fleet.ClusterName) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.costs[name]
}

// charge makes the reconciles of a member take as long.
func (s *scene) charge(name fleet.ClusterName, each time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.costs[name] = each
}

// label changes the labels of a member, for all replicas.
func (s *scene) label(name fleet.ClusterName, labels map[string]string) {
	s.mu.Lock()
	s.members[name] = labels
	s.mu.Unlock()
	for _, a := range s.all() {
		a.worker.wake.send()
	}
}

// actor is one replica, with a fleet that takes and releases tenures.
type actor struct {
	scene   *scene
	name    string
	replica *Replica
	worker  *worker
	faults  *faults
	life    context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
}

// local is the cluster that a replica runs against.
type local struct {
	cluster.Cluster
	config *rest.Config
}

func (l local) GetConfig() *rest.Config { return l.config }

func (l local) GetHTTPClient() *http.Client {
	client, err := rest.HTTPClientFor(l.config)
	if err != nil {
		panic(err)
	}
	return client
}

// start starts a replica.
func (s *scene) start(name string, edits ...func(*Options)) *actor {
	s.t.Helper()
	return s.startWith(name, systemClock{time.Now()}, edits...)
}

func (s *scene) startWith(name string, c clock, edits ...func(*Options)) *actor {
	s.t.Helper()
	a := s.prepareWith(name, c, edits...)
	a.run()
	return a
}

// prepare makes a replica that is to run.
func (s *scene) prepare(name string, edits ...func(*Options)) *actor {
	s.t.Helper()
	return s.prepareWith(name, systemClock{time.Now()}, edits...)
}

func (s *scene) prepareWith(name string, c clock, edits ...func(*Options)) *actor {
	s.t.Helper()
	opts := Options{
		ID: "test", Namespace: s.namespace, Name: name, LeaseDuration: s.lease, Settle: s.lease / 6, Buckets: 64,
		Logger: testr.NewWithOptions(s.t, testr.Options{LogTimestamp: true, Verbosity: 1}).WithName(name),
	}
	for _, edit := range edits {
		edit(&opts)
	}
	r, err := newReplica(opts, c)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.costs != nil {
		r.costs = protocol.NewCosts(s.pace)
	}
	a := &actor{scene: s, name: name, replica: r, faults: &faults{}, ended: make(chan struct{})}
	a.worker = &worker{actor: a, wake: newSignal(), held: map[fleet.ClusterName]fleet.Tenure{}, meters: map[fleet.ClusterName]func(time.Duration){}, over: make(chan struct{})}
	a.life, a.cancel = context.WithCancel(context.WithoutCancel(s.t.Context())) // scene.end ends it
	return a
}

// run runs a replica until it is stopped.
func (a *actor) run() {
	config := rest.CopyConfig(a.scene.config)
	config.WrapTransport = a.faults.wrap
	var running sync.WaitGroup
	running.Go(a.worker.run)
	go func() {
		if err := a.replica.Run(a.life, local{config: config}, a.worker.wake.send); err != nil {
			a.scene.t.Errorf("replica %s: %v", a.name, err)
		}
		close(a.worker.over)
		running.Wait()
		close(a.ended)
	}()
	a.scene.mu.Lock()
	defer a.scene.mu.Unlock()
	a.scene.actors = append(a.scene.actors, a)
}

// stop ends a replica as SIGTERM does.
func (a *actor) stop() {
	a.cancel()
	<-a.ended
}

// kill cuts the replica off, as if its process was killed, and its last requests were still under way.
func (a *actor) kill() {
	a.faults.all(refuse)
	a.worker.crash()
}

func (a *actor) session() string {
	return a.replica.Status().Session
}

// worker stands for the fleet of one replica: it writes to each member that it owns all the time.
type worker struct {
	*actor
	// knows reports whether a member is one of its fleet's; nil if all are.
	knows func(fleet.ClusterName) bool
	wake  signal
	over  chan struct{}

	mu      sync.Mutex // guards what follows
	held    map[fleet.ClusterName]fleet.Tenure
	meters  map[fleet.ClusterName]func(time.Duration)
	crashed bool
	hangs   map[fleet.ClusterName]bool // what runs for these does not end
}

func (w *worker) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crashed = true
}

func (w *worker) revive() {
	w.mu.Lock()
	w.crashed, w.hangs = false, nil
	w.mu.Unlock()
	w.wake.send()
}

func (w *worker) hang(name fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hangs == nil {
		w.hangs = map[fleet.ClusterName]bool{}
	}
	w.hangs[name] = true
}

func (w *worker) run() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.wake:
			w.look()
		case <-tick.C:
			w.write()
		case <-w.over:
			return
		}
	}
}

// look takes what can be had, and gives up what is over.
func (w *worker) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed {
		return
	}
	names := w.scene.names()
	if w.knows != nil {
		maps.DeleteFunc(names, func(name fleet.ClusterName, _ map[string]string) bool { return !w.knows(name) })
	}
	for name, tenure := range w.held {
		labels, is := names[name]
		if tenure.Over() != nil || !is || !tenure.Covers(labels) {
			if w.hangs[name] {
				continue
			}
			delete(w.held, name)
			w.scene.ledger.release(name, tenure)
		}
	}
	for name, labels := range names {
		if w.held[name] != nil {
			continue
		}
		if owner := w.replica.Own(name, labels); owner.Tenure != nil {
			w.held[name], w.meters[name] = owner.Tenure, owner.Spent
			w.scene.ledger.take(name, owner.Tenure)
		}
	}
}

func (w *worker) write() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, tenure := range w.held {
		w.scene.ledger.write(name, w.replica, tenure)
		if spent := w.meters[name]; spent != nil {
			spent(w.scene.cost(name))
		}
	}
}

// holds returns the members that the replica may write to now.
func (a *actor) holds() []fleet.ClusterName {
	a.worker.mu.Lock()
	defer a.worker.mu.Unlock()
	var names []fleet.ClusterName
	for name, tenure := range a.worker.held {
		if tenure.Remaining() > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tenures returns what a replica holds, whether it may write or not.
func (a *actor) tenures() []fleet.Tenure {
	a.worker.mu.Lock()
	defer a.worker.mu.Unlock()
	all := make([]fleet.Tenure, 0, len(a.worker.held))
	for _, tenure := range a.worker.held {
		all = append(all, tenure)
	}
	return all
}

func (a *actor) isIn(state State) func() bool {
	return func() bool { return a.replica.Status().State == state }
}

// ledger has who wrote to each member last. No replica may write after one of a later epoch has, nor two with the same epoch. A
// member that gets another key or pool is another one: its epochs are those of another bucket.
type ledger struct {
	t *testing.T
	// impatient replicas give up what still runs.
	impatient bool

	mu      sync.Mutex // guards what follows
	last    map[fleet.ClusterName]*written
	running map[fleet.ClusterName]map[*tenure]bool
	taken   int
}

// takings returns how often members were taken.
func (l *ledger) takings() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// take notes that something runs for a member now. Nothing may run for it elsewhere, but under a session that cannot write.
func (l *ledger) take(name fleet.ClusterName, of fleet.Tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := of.(*tenure)
	for other := range l.running[name] {
		if !l.impatient && other.key == now.key && other.pool == now.pool && other.session.remaining() > 0 {
			l.t.Errorf("%s took %s while something ran for it at %s", now.replica.opts.Name, name, other.replica.opts.Name)
		}
	}
	if l.running[name] == nil {
		l.running[name] = map[*tenure]bool{}
	}
	l.running[name][now] = true
	l.taken++
}

func (l *ledger) release(name fleet.ClusterName, of fleet.Tenure) {
	l.mu.Lock()
	delete(l.running[name], of.(*tenure))
	l.mu.Unlock()
	of.Release()
}

type written struct {
	epoch int64
	by    *Replica
}

func (l *ledger) write(name fleet.ClusterName, by *Replica, of fleet.Tenure) {
	tenure := of.(*tenure)
	l.mu.Lock()
	defer l.mu.Unlock()
	if tenure.Remaining() <= 0 {
		return
	}
	if tenure.key != string(name) || tenure.pool != "" {
		name = fleet.ClusterName(fmt.Sprintf("%s, with key %s in pool %q", name, tenure.key, tenure.pool))
	}
	last := l.last[name]
	switch {
	case last == nil:
		last = &written{}
		l.last[name] = last
	case tenure.Epoch() < last.epoch:
		l.t.Errorf("%s wrote to %s with epoch %d after %s with epoch %d", by.opts.Name, name, tenure.Epoch(), last.by.opts.Name, last.epoch)
	case tenure.Epoch() == last.epoch && last.by != by:
		l.t.Errorf("%s wrote to %s with epoch %d, as did %s", by.opts.Name, name, tenure.Epoch(), last.by.opts.Name)
	}
	last.epoch, last.by = tenure.Epoch(), by
}

// owners returns who may write to each member now.
func (s *scene) owners() map[fleet.ClusterName]string {
	owners := map[fleet.ClusterName]string{}
	for _, a := range s.all() {
		for _, name := range a.holds() {
			owners[name] = a.name
		}
	}
	return owners
}

// shared reports whether each member is owned, and each of these replicas owns its part.
func (s *scene) shared(among ...*actor) bool {
	owners := s.owners()
	all := len(s.names())
	if len(owners) != all {
		return false
	}
	for _, a := range among {
		if n := len(a.holds()); float64(n) < 0.5*float64(all)/float64(len(among)) {
			return false
		}
	}
	return true
}

func (s *scene) becomesShared(among ...*actor) {
	s.t.Helper()
	stage.Eventually(s.t, "each member has an owner, and each replica a fair part", func() bool { return s.shared(among...) })
}

func (s *scene) leases() []coordinationv1.Lease {
	s.t.Helper()
	var list coordinationv1.LeaseList
	if err := s.cp.Client().List(s.t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// becomesToldOf waits for an event on the table.
func (s *scene) becomesToldOf(reason string) {
	s.t.Helper()
	stage.Eventually(s.t, "there is an event "+reason, func() bool {
		var events corev1.EventList
		if err := s.cp.Client().List(s.t.Context(), &events, client.InNamespace(s.namespace)); err != nil {
			s.t.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Kind == "Lease" && e.InvolvedObject.Name == "test.table"
		})
	})
}
