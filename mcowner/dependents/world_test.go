package dependents_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

const (
	fleetName  = "test"
	controller = "spread"
)

// world is what a test has: a local cluster with owners, which are ConfigMaps of the namespace, and members with
// dependents, which are ConfigMaps there.
type world struct {
	*mctest.Fleet
	t            *testing.T
	ns           string
	probeTimeout time.Duration // after two of which a frozen member is Unreachable
	// probeInterval is how often members are asked whether they are ready, zero for half a second. After six of them it is asked
	// which cluster it is that a provider has made.
	probeInterval time.Duration
	// connectTimeout bounds an attempt to connect a member, zero for the default.
	connectTimeout time.Duration
	// mostRetry is the longest pause between attempts, such as to list a kind, zero for half a second.
	mostRetry time.Duration
	// clusterOptions are those of members, nil for none.
	clusterOptions func(fleet.Member) []cluster.Option
}

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	return newWorldIn(t, pool.Start(t, mctest.Options{Clusters: members}))
}

func newWorldIn(t *testing.T, f *mctest.Fleet) *world {
	t.Helper()
	// A machine that stands still for a second must not make members Unreachable.
	w := &world{Fleet: f, t: t, ns: f.Local.CreateNamespace(t), probeTimeout: 3 * time.Second}
	for _, cp := range f.Members {
		w.create(cp, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	}
	return w
}

// spread is a reconciler that copies ConfigMaps of the local cluster to the members that their annotation "to" names,
// divided by commas; to all if it says "all".
func (w *world) spread() *dependents.Reconciler[*corev1.ConfigMap] {
	return &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet: fleetName, Name: controller,
		OwnersIn: mcowner.Clusters{Local: true},
		Kinds:    []client.Object{&corev1.ConfigMap{}},
		Targets: func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			return targetsOf(owner), nil
		},
		Desired: func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)},
				Data:       map[string]string{"value": owner.Data["value"], "cluster": string(target.Cluster)},
			}}, nil
		},
		Sweep: orphans.Sweep{Interval: time.Hour},
	}
}

func copyOf(owner string) string { return owner + "-copy" }

func targetsOf(owner *corev1.ConfigMap) []mcreconcile.ClusterName {
	var names []mcreconcile.ClusterName
	for name := range strings.SplitSeq(owner.Annotations["to"], ",") {
		if name != "" {
			names = append(names, mcreconcile.ClusterName(name))
		}
	}
	return names
}

// owner returns a ConfigMap that is to have copies in these members.
func (w *world) owner(name string, to ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Annotations: map[string]string{"to": strings.Join(to, ",")}},
		Data:       map[string]string{"value": "1"},
	}
}

func (w *world) create(cp *mctest.ControlPlane, obj client.Object) {
	w.t.Helper()
	if err := cp.Client().Create(w.t.Context(), obj); err != nil {
		w.t.Fatal(err)
	}
}

// change changes an object of a cluster.
func (w *world) change(cp *mctest.ControlPlane, name string, change func(*corev1.ConfigMap)) {
	w.t.Helper()
	cm := w.mustGet(cp, name)
	patch := client.MergeFrom(cm.DeepCopy())
	change(cm)
	if err := cp.Client().Patch(w.t.Context(), cm, patch); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(cp *mctest.ControlPlane, name string, opts ...client.DeleteOption) {
	w.t.Helper()
	err := cp.Client().Delete(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
}

// get returns a ConfigMap of the namespace, nil if there is none.
func (w *world) get(cp *mctest.ControlPlane, name string) *corev1.ConfigMap {
	w.t.Helper()
	cm := &corev1.ConfigMap{}
	err := cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return cm
}

func (w *world) mustGet(cp *mctest.ControlPlane, name string) *corev1.ConfigMap {
	w.t.Helper()
	cm := w.get(cp, name)
	if cm == nil {
		w.t.Fatalf("there is no ConfigMap %s in %s", name, cp.Name)
	}
	return cm
}

// list returns the ConfigMaps of the namespace that belong to the fleet.
func (w *world) list(cp *mctest.ControlPlane) []corev1.ConfigMap {
	w.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := cp.Client().List(w.t.Context(), list, client.InNamespace(w.ns), client.MatchingLabels{mcowner.FleetLabel: fleetName}); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// isCopied waits until a member has the copy of an owner.
func (w *world) isCopied(cp *mctest.ControlPlane, owner string) *corev1.ConfigMap {
	w.t.Helper()
	var cm *corev1.ConfigMap
	eventually(w.t, fmt.Sprintf("%s has the copy of %s", cp.Name, owner), func() bool {
		cm = w.get(cp, copyOf(owner))
		return cm != nil && cm.DeletionTimestamp == nil
	})
	return cm
}

func (w *world) isGone(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	defer func() {
		if there := w.get(cp, name); there != nil && w.t.Failed() {
			w.t.Logf("it is there: %+v", there.ObjectMeta)
		}
	}()
	eventually(w.t, fmt.Sprintf("%s is gone from %s", name, cp.Name), func() bool { return w.get(cp, name) == nil })
}

// has reports whether an event with this reason and text was recorded on an object of a cluster.
func (w *world) has(cp *mctest.ControlPlane, name, reason, text string) bool {
	w.t.Helper()
	list := &eventsv1.EventList{}
	such := client.MatchingFields{"regarding.name": name, "reason": reason}
	if err := cp.Client().List(w.t.Context(), list, client.InNamespace(w.ns), such); err != nil {
		w.t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return strings.Contains(e.Note, text) })
}

func (w *world) told(cp *mctest.ControlPlane, name, reason, text string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("an event %s about %q on %s", reason, text, name), func() bool { return w.has(cp, name, reason, text) })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	// Owners are tried again once a minute at least: twice that leaves time for a last try.
	eventuallyWithin(t, 2*time.Minute, what, holds)
}

// eventuallyWithin ends a test that fails; no test passes because of the time.
func eventuallyWithin(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond) // more often costs more than it saves, with tests side by side
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not so: %s", what)
		}
	}
}

// process is a running program: a manager with a reconciler.
type process struct {
	mcmanager.Manager
	t       *testing.T
	power   *power
	members *fleettest.Provider
	replica *sharding.Replica // of those that share the members, nil if it is alone
	cancel  context.CancelFunc
	done    chan error
}

type setUpFunc func(mcmanager.Manager) error

// run runs a reconciler until the test ends, with all members in the fleet.
func (w *world) run(r interface {
	SetupWithManager(mgr mcmanager.Manager, more ...func(*mcbuilder.Builder)) error
},
) *process {
	w.t.Helper()
	return w.runWith(func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
}

func (w *world) runWith(setUp setUpFunc) *process {
	w.t.Helper()
	return w.runAs(w.Local.Config(), setUp)
}

// runAs runs a program with a config of the local cluster.
func (w *world) runAs(local *rest.Config, setUp setUpFunc, more ...mcmanager.FleetOption) *process {
	w.t.Helper()
	p := &process{t: w.t, power: newPower(), members: &fleettest.Provider{}, done: make(chan error, 1)}
	for _, cp := range w.Members {
		if err := p.members.Set(p.member(cp)); err != nil {
			w.t.Fatal(err)
		}
	}
	mgr, err := mcmanager.New(p.power.feed(local), p.members, mcmanager.Options{
		Logger: logger(w.t), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		// The API server's own is no owner: no other test could use a control plane in which that was changed.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Field: fields.OneTermNotEqualSelector("metadata.namespace", metav1.NamespaceSystem)},
		}},
	}, append(more, func(o *fleet.Options) {
		o.MaxRetryPeriod, o.ConnectTimeout, o.ClusterOptions = cmp.Or(w.mostRetry, 500*time.Millisecond), w.connectTimeout, w.clusterOptions
		o.Health = fleet.HealthOptions{
			ProbeInterval: cmp.Or(w.probeInterval, 500*time.Millisecond), RetryInterval: 100 * time.Millisecond, ProbeTimeout: w.probeTimeout,
			FailureThreshold: 2, SuccessThreshold: 1,
		}
	})...)
	if err == nil {
		err = setUp(mgr)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p.Manager = mgr
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	p.cancel = cancel
	go func() { p.done <- mgr.Start(ctx) }()
	w.t.Cleanup(p.stop)
	w.t.Cleanup(p.explain)
	return p
}

// explain says in a test that has failed how the members are.
func (p *process) explain() {
	if !p.t.Failed() || p.GetProvider() == nil {
		return
	}
	for _, m := range p.GetFleet().List(nil) {
		p.t.Logf("member %s is %s since %s: %s: %s", m.Name, m.State, m.Since, m.Reason, m.Message)
	}
}

func logger(t *testing.T) logr.Logger {
	t.Helper()
	if os.Getenv("LOG") == "" {
		return logr.Discard()
	}
	return testr.NewWithOptions(t, testr.Options{Verbosity: 1})
}

// member describes a control plane as a member.
func (p *process) member(cp *mctest.ControlPlane) fleet.Member {
	return fleet.Member{
		Name: fleet.ClusterName(cp.Name), Config: p.power.feed(cp.Config()), Revision: "1",
		Labels: map[string]string{"name": cp.Name},
	}
}

// stop stops the program, which ends what it does.
func (p *process) stop() {
	p.t.Helper()
	if p.cancel == nil {
		return
	}
	p.cancel()
	p.cancel = nil
	if err := <-p.done; err != nil && !p.power.isOff() {
		p.t.Errorf("the manager ended with an error: %v", err)
	}
}

// kill ends the program as if it were killed: nothing that it does from now on reaches a cluster.
func (p *process) kill() {
	p.t.Helper()
	p.power.off()
	p.stop()
}

// isAtRest reports whether the program has written nothing for a while.
func (p *process) isAtRest() bool {
	before := p.power.writes.Load()
	<-time.After(200 * time.Millisecond)
	return p.power.writes.Load() == before
}

// is waits until a member is in a state.
func (p *process) is(cp *mctest.ControlPlane, state fleet.State) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %q", cp.Name, state), func() bool {
		status, _ := p.GetFleet().Status(fleet.ClusterName(cp.Name))
		return status.State == state
	})
}

// knows reports whether the program's cache has an object of a member in this version.
func (p *process) knows(cp *mctest.ControlPlane, cm *corev1.ConfigMap) bool {
	return p.hasRead(cp, cm, &corev1.ConfigMap{})
}

// hasRead is knows for an object that is cached in another type.
func (p *process) hasRead(cp *mctest.ControlPlane, obj, cached client.Object) bool {
	engagement, err := p.GetFleet().Engagement(fleet.ClusterName(cp.Name))
	if err != nil {
		return false
	}
	err = engagement.Cluster().GetCache().Get(p.t.Context(), client.ObjectKeyFromObject(obj), cached)
	return err == nil && cached.GetResourceVersion() == obj.GetResourceVersion()
}

// power is what a program needs to reach clusters.
type power struct {
	ctx       context.Context // it is on until this ends
	off       context.CancelFunc
	writes    atomic.Int32 // requests that change something, but for events
	deletions atomic.Int32 // those of them that delete
	// tap is called before each request, and what it returns with the answer. It may be nil.
	tap atomic.Pointer[func(*http.Request) (answered func())]
	// refused is a method, a host, and the end of a path there: what gets no further.
	refused atomic.Pointer[[3]string]
	// page reports whether a request is answered with a page, as a gateway does that knows no way to the cluster. It may be nil.
	page atomic.Pointer[func(*http.Request) bool]
}

func newPower() *power {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the program lives longer than t.Context
	return &power{ctx: ctx, off: cancel}
}

func (p *power) isOff() bool { return p.ctx.Err() != nil }

var errNoPower = errors.New("the program was killed")

// feed returns the config with a transport that fails once the power is off.
func (p *power) feed(cfg *rest.Config) *rest.Config {
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return powered{p, through} })
	return cfg
}

type powered struct {
	*power
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p powered) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.isOff() {
		return nil, errNoPower
	}
	if req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/events") {
		p.writes.Add(1)
	}
	if req.Method == http.MethodDelete {
		p.deletions.Add(1)
	}
	if tap := p.tap.Load(); tap != nil {
		if answered := (*tap)(req); answered != nil {
			defer answered()
		}
	}
	if r := p.refused.Load(); r != nil && req.Method == r[0] && req.URL.Host == r[1] && strings.HasSuffix(req.URL.Path, r[2]) {
		return nil, errors.New("refused by the test")
	}
	if page := p.page.Load(); page != nil && (*page)(req) {
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}}, Request: req,
			Body: io.NopCloser(strings.NewReader("404 page not found\n")),
		}, nil
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	context.AfterFunc(p.ctx, func() { cancel(errNoPower) })
	return p.through.RoundTrip(req.WithContext(ctx))
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (p powered) WrappedRoundTripper() http.RoundTripper { return p.through }

// ear is a way to a member on which watches can fall silent.
type ear struct {
	silent  chan struct{} // closed once nothing is heard any more
	stop    func()
	through http.RoundTripper
}

func newEar(t *testing.T) *ear {
	t.Helper()
	silent := make(chan struct{})
	e := &ear{silent: silent, stop: sync.OnceFunc(func() { close(silent) })}
	t.Cleanup(e.stop)
	return e
}

// listen returns the config with a transport whose watches fall silent.
func (e *ear) listen(cfg *rest.Config) *rest.Config {
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &ear{silent: e.silent, through: through} })
	return cfg
}

// RoundTrip implements http.RoundTripper.
func (e *ear) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.through.RoundTrip(req)
	if err == nil && req.URL.Query().Has("watch") {
		resp.Body = &silentBody{ReadCloser: resp.Body, silent: e.silent, closed: req.Context().Done()}
	}
	return resp, err
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (e *ear) WrappedRoundTripper() http.RoundTripper { return e.through }

// runBehind runs a reconciler with one member, on the way to which watches can fall silent.
func (w *world) runBehind(e *ear, cp *mctest.ControlPlane, r *dependents.Reconciler[*corev1.ConfigMap]) *process {
	w.t.Helper()
	w.Members = nil
	p := w.run(r)
	if err := p.members.Set(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: p.power.feed(e.listen(cp.Config()))}); err != nil {
		w.t.Fatal(err)
	}
	return p
}

type silentBody struct {
	io.ReadCloser
	silent, closed <-chan struct{}
}

// Read implements io.Reader.
func (b *silentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.silent:
		<-b.closed
		return 0, io.EOF
	default:
		return n, err
	}
}

var everywhere = labels.Everything()
