package fleet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// ownedMember runs a fleet that owns the member "a", and not "b", which is the same cluster.
func ownedMember(t *testing.T) (*Fleet, *shares, *Engagement, *corev1.Namespace) {
	t.Helper()
	cp := pool.Share(t, mctest.Options{})
	s := newShares("a")
	f := running(t, Options{Ownership: s})
	for _, name := range []ClusterName{"a", "b"} {
		mustSet(t, f, Member{Name: name, Config: cp.Config()})
	}
	mustBecome(func() bool { _, err := f.Engagement("a"); return err == nil })
	e, err := f.Engagement("a")
	if err != nil {
		t.Fatal(err)
	}
	return f, s, e, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cp.CreateNamespace(t)}}
}

func create(ctx context.Context, c client.Client, ns *corev1.Namespace) error {
	return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, GenerateName: "a-"}})
}

func read(ctx context.Context, c client.Client, ns *corev1.Namespace) error {
	return c.Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{})
}

// TestNothingIsWrittenToAMemberWhoseOwnershipIsNotProved: from the moment on at which time is up, though the fleet has not heard yet.
func TestNothingIsWrittenToAMemberWhoseOwnershipIsNotProved(t *testing.T) {
	t.Parallel()
	f, s, e, ns := ownedMember(t)
	c := e.Cluster().GetClient()
	if err := create(t.Context(), c, ns); err != nil {
		t.Fatal(err)
	}
	s.proveUntold(0)
	for what, err := range map[string]error{
		"creating": create(t.Context(), c, ns), "its status": c.Status().Update(t.Context(), ns), "deleting": c.Delete(t.Context(), ns),
	} {
		state, ok := errors.AsType[*StateError](err)
		if !ok || !errors.Is(err, ErrNotReady) || state.Status.State != Suspended || state.Status.Reason != ReasonUnproved {
			t.Errorf("%s: %v, want a StateError that says Suspended", what, err)
		}
	}
	if err := e.Cluster().GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(ns), &corev1.Namespace{}); err != nil {
		t.Errorf("reading: %v", err)
	}
	if s, _ := f.Status("a"); s.State != Ready {
		t.Errorf("refusals made the member %s (%s)", s.State, s.Reason)
	}
	s.proveUntold(time.Hour)
	if err := create(t.Context(), c, ns); err != nil {
		t.Errorf("when it is proved again: %v", err)
	}
	s.giveUntold("a", "other")
	if err := create(t.Context(), c, ns); !errors.Is(err, ErrNotOwned) {
		t.Errorf("when another replica is to own it: %v, want ErrNotOwned", err)
	}
}

// TestARequestThatIsUnderWayEndsBeforeOwnershipDoes: it says so to the server too, which is asked to give up.
func TestARequestThatIsUnderWayEndsBeforeOwnershipDoes(t *testing.T) {
	t.Parallel()
	_, s, e, ns := ownedMember(t)
	s.proveUntold(time.Nanosecond)
	if err := create(t.Context(), e.Cluster().GetClient(), ns); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a nanosecond left: %v, want that its time is up", err)
	}
}

// TestWhatIsDoneForAMemberElsewhereEndsWithIt: as a guest, and in members that this replica does own.
func TestWhatIsDoneForAMemberElsewhereEndsWithIt(t *testing.T) {
	t.Parallel()
	f, s, e, ns := ownedMember(t)
	ctx, _, end, err := f.Controller("things").Begin(t.Context(), "a", named("a reconcile"))
	if err != nil {
		t.Fatal(err)
	}
	defer end(reconcile.Result{}, nil)
	if epoch := mcreconcile.Epoch(ctx); epoch != 7 {
		t.Errorf("the epoch of the reconcile is %d, want 7", epoch)
	}
	guest, err := f.Guest(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := create(ctx, guest.Client(), ns); err != nil {
		t.Errorf("writing as a guest: %v", err)
	}
	inner, leave, err := e.Join(ctx, named("what it does beside"))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	s.giveUntold("a", "other")
	for what, ctx := range map[string]context.Context{"the reconcile": ctx, "what it joined": inner} {
		if err := create(ctx, guest.Client(), ns); !errors.Is(err, ErrNotOwned) {
			t.Errorf("%s writes as a guest: %v, want ErrNotOwned", what, err)
		}
		if err := read(ctx, guest.Client(), ns); err != nil {
			t.Errorf("%s reads as a guest: %v", what, err)
		}
	}
	if err := create(t.Context(), guest.Client(), ns); err != nil {
		t.Errorf("a guest that acts for nobody: %v", err)
	}
}

// gatedServer counts the requests that arrive whole. The gate of the wire to it is open until shut is called, as if its time was up.
func gatedServer(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error)) (w *wire, server *httptest.Server, arrived *atomic.Int64, shut func()) {
	t.Helper()
	arrived = &atomic.Int64{}
	server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			arrived.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	var closed atomic.Bool
	own := &gate.Gate{
		Remaining: func() time.Duration {
			if closed.Load() {
				return 0
			}
			return time.Hour
		},
		Refusal: func() error { return ErrNotOwned },
	}
	g, err := newGeneration(&rest.Config{Host: server.URL, Dial: dial}, &credplugin.Plugin{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.finish)
	w = newTestWire(t, server, nil)
	w.gate, w.identify = own, nil
	w.current.Store(g)
	return w, server, arrived, func() {
		closed.Store(true)
		g.until.Store(&time.Time{})
	}
}

// TestARequestThatWaitedForAConnectionIsRefused if the gate has closed meanwhile.
func TestARequestThatWaitedForAConnectionIsRefused(t *testing.T) {
	t.Parallel()
	var shut func()
	w, server, arrived, closes := gatedServer(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		shut()
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	shut = closes
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RoundTrip(req); !errors.Is(err, ErrNotOwned) || arrived.Load() > 0 { //nolint:bodyclose // it fails
		t.Errorf("the request ended with %v, and %d arrived, want it refused", err, arrived.Load())
	}
	if w.health.doubt {
		t.Error("what this replica does not send casts doubt on the member")
	}
}

// TestARequestOnBehalfOfAnotherMemberEndsWithThatOnesGate: before it is sent, while it waits for a connection, and after some time.
func TestARequestOnBehalfOfAnotherMemberEndsWithThatOnesGate(t *testing.T) {
	t.Parallel()
	var shut func()
	w, server, arrived, closes := gatedServer(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		shut()
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	shut = closes
	own := w.gate
	w.gate = nil
	hurried := &gate.Gate{Remaining: func() time.Duration { return time.Nanosecond }, Refusal: own.Refusal}
	for _, tc := range []struct {
		gate *gate.Gate
		want error
	}{{own, ErrNotOwned}, {own, ErrNotOwned}, {hurried, context.DeadlineExceeded}} {
		req, err := http.NewRequestWithContext(gate.With(t.Context(), tc.gate), http.MethodPost, server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.RoundTrip(req); !errors.Is(err, tc.want) || arrived.Load() > 0 { //nolint:bodyclose // it fails
			t.Errorf("the request ended with %v, and %d arrived, want %v", err, arrived.Load(), tc.want)
		}
	}
}

// TestARequestIsCutOffInTheMiddle by a gate that closes, its own or that of the member on whose behalf it is sent: the process may have been
// stopped there for long. What is sent later, and passes no gate, is not.
func TestARequestIsCutOffInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		visits bool
		later  string
	}{"Member": {false, http.MethodGet}, "Visit": {true, http.MethodPost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, server, arrived, shut := gatedServer(t, nil)
			ctx := t.Context()
			if tc.visits {
				ctx = gate.With(ctx, w.gate)
				w.gate = nil
			}
			send := func(ctx context.Context, method string, body io.Reader) error {
				req, err := http.NewRequestWithContext(ctx, method, server.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := w.RoundTrip(req)
				if err == nil {
					err = resp.Body.Close()
				}
				return err
			}
			body, writer := io.Pipe()
			go func() {
				_, _ = io.WriteString(writer, "the first half")
				shut()
				_, _ = io.WriteString(writer, "the second half")
				_ = writer.Close()
			}()
			if err := send(ctx, http.MethodPost, body); err == nil || arrived.Load() > 0 {
				t.Errorf("the request ended with %v, and %d arrived whole, want none", err, arrived.Load())
			}
			if err := send(t.Context(), tc.later, http.NoBody); err != nil {
				t.Errorf("later: %v", err)
			}
			if n := len(w.current.Load().changing()); n != 0 {
				t.Errorf("%d requests count as under way", n)
			}
		})
	}
}

// TestWhatIsUnderWayIsAnswered although its caller gives up, the gate closes, and the engagement or the guest ends, also if the credentials
// were replaced meanwhile: the next owner must not begin before that.
func TestWhatIsUnderWayIsAnswered(t *testing.T) {
	t.Parallel()
	tests := map[string]sender{"Guest": guestThatEnds}
	for name, end := range map[string]func(e *Engagement, next *generation){
		"Current": func(e *Engagement, _ *generation) { e.end(errRemoved) },
		"Replaced": func(e *Engagement, next *generation) {
			e.retire(e.wire.replace(next))
			e.end(errRemoved)
		},
		"Replaced long before": func(e *Engagement, next *generation) {
			e.retire(e.wire.replace(next))
			<-time.After(2 * rotationGrace)
			e.end(errRemoved)
		},
		"Replaced as it ends": func(e *Engagement, next *generation) {
			old := e.wire.replace(next)
			e.end(errRemoved)
			e.retire(old)
		},
	} {
		tests[name] = engagementThatEnds(end)
	}
	for name, of := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { isAnswered(t, of) })
		})
	}
}

// sender makes something that sends requests, in this context, and changes what another replica may own once the gate is closed. end ends it, and
// returns when nothing is under way.
type sender func(t *testing.T, cfg *rest.Config, own *gate.Gate) (w *wire, ctx context.Context, end func() error)

func engagementThatEnds(end func(e *Engagement, next *generation)) sender {
	return func(t *testing.T, cfg *rest.Config, own *gate.Gate) (*wire, context.Context, func() error) {
		t.Helper()
		next, err := newGeneration(cfg, &credplugin.Plugin{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := newGeneration(cfg, &credplugin.Plugin{})
		if err != nil {
			t.Fatal(err)
		}
		e := newEngagement(t.Context(), "a")
		e.wire = &wire{gate: own, most: 1 << 20}
		e.wire.health = newHealth(Options{}.withDefaults().Health, e.wire, func(State, error) {}, func() {})
		e.wire.current.Store(first)
		return e.wire, t.Context(), func() error {
			end(e, next)
			e.wire.close()
			return e.drain(context.WithoutCancel(t.Context()))
		}
	}
}

// guestThatEnds is a guest that acts on behalf of another member, and takes over new credentials right before it ends.
func guestThatEnds(t *testing.T, cfg *rest.Config, own *gate.Gate) (*wire, context.Context, func() error) {
	t.Helper()
	before := Member{Name: "a", Identity: "1", Config: cfg}
	m := newMember(New(Options{}), before)
	g := &Guest{identity: "1"}
	g.ctx, g.cancel = context.WithCancelCause(t.Context())
	w, err := m.newGuestWire(g, cfg, before)
	if err != nil {
		t.Fatal(err)
	}
	first := w.current.Load()
	return w, gate.With(t.Context(), own), func() error {
		m.described.Config = rest.CopyConfig(cfg)
		m.described.Config.BearerToken = "new"
		_, err := m.renewGuest(g, w, before)
		if w.current.Load() == first {
			t.Error("the guest has not taken over the new credentials")
		}
		g.cancel(errRemoved)
		<-first.idle
		return err
	}
}

// readyServer returns a connection to a server that answers all requests alike.
func readyServer() net.Conn {
	near, far := net.Pipe()
	go func() {
		for from := bufio.NewReader(far); ; {
			if _, err := http.ReadRequest(from); err != nil {
				return
			}
			_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	return near
}

// isAnswered has a request under way that changes a member as its sender ends, of which the server knows nothing.
func isAnswered(t *testing.T, of sender) {
	t.Helper()
	near, far := net.Pipe()
	left, dialed := time.Hour, 0
	own := &gate.Gate{Refusal: func() error { return ErrNotOwned }, Remaining: func() time.Duration { return left }}
	cfg := &rest.Config{Host: "http://member", Dial: func(context.Context, string, string) (net.Conn, error) {
		if dialed++; dialed == 1 {
			return near, nil
		}
		return readyServer(), nil
	}}
	w, ctx, end := of(t, cfg, own)

	ctx, giveUp := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.Host, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	answered, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		resp, err := w.RoundTrip(req)
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	giveUp()
	left = 0
	go func() { ended <- end() }()
	<-time.After(3 * rotationGrace)
	synctest.Wait()
	if len(ended) > 0 {
		t.Error("the engagement is over, or the guest, while a request is under way that may change the member")
	}
	if _, err := io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Errorf("the connection is closed: %v", err)
	}
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Errorf("the request ended with %v, want its answer", err)
	}
}
