package mcwebhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const validatePath = "/validate--v1-configmap"

// TestOneObjectHasAnotherVerdictInEachCluster: the handler reads from the cluster that asks.
func TestOneObjectHasAnotherVerdictInEachCluster(t *testing.T) {
	w := newWorld(t, 2)
	w.newProgram("Fail", nil).start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	for _, cp := range w.Members {
		for _, other := range w.Members {
			cm, err := w.write(cp, other.Name)
			switch {
			case cp == other && (err == nil || !strings.Contains(err.Error(), "forbidden by "+cp.Name)):
				t.Errorf("what %s forbids was written there: %v", cp.Name, err)
			case cp != other && err != nil:
				t.Errorf("what %s forbids in %s: %v", other.Name, cp.Name, err)
			case cp != other && cm.Data["cluster"] != cp.Name:
				t.Errorf("an object of %s was given %v", cp.Name, cm.Data)
			}
		}
	}
}

// TestForgedPathsHaveOneAnswer that tells nothing, and cost neither series nor goroutines.
func TestForgedPathsHaveOneAnswer(t *testing.T) {
	w := newWorld(t, 2)
	p := w.newProgram("Fail", nil).start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	const validate = "/validate--v1-configmap"
	right := p.path("member-1", validate)
	if code, answer := p.call(right); code != http.StatusOK {
		t.Fatalf("the right path: %s", answer)
	}
	p.join(fleet.Member{Name: "broken", Err: errors.New("it does not parse")})
	key := p.hooks.keeper.store.now.Load().key
	member2 := p.path("member-2", validate)
	identity := func(name fleet.ClusterName) string {
		e, err := p.GetFleet().Engagement(name)
		if err != nil {
			t.Fatal(err)
		}
		return e.Identity()
	}
	other := caller{name: "member-2", identity: identity("member-2")}.proof(key)
	forged := map[string]string{
		"a key of another member":      strings.Replace(right, "/member-1/", "/member-2/", 1),
		"another member's identity":    "/c/member-1/" + strings.SplitN(member2, "/", 4)[3],
		"a member that is not there":   strings.Replace(right, "/member-1/", "/member-9/", 1),
		"one that was never there":     caller{"member-9", "", validate}.path(key),
		"another cluster of that name": caller{"member-1", "another", validate}.path(key),
		"a key of another secret":      caller{"member-1", identity("member-1"), validate}.path(newKey()),
		"a key of another cluster":     strings.Replace(right, caller{name: "member-1", identity: identity("member-1")}.proof(key), other, 1),
		"half a key":                   strings.Replace(right, validate, "", 1)[:len(right)-len(validate)-10] + validate,
		"another path":                 p.path("member-1", "/validate"),
		"no key":                       "/c/member-1" + validate,
		"no member":                    "/c/",
		"the local cluster":            caller{"", "", validate}.path(key),
		"a path of the local cluster":  validate,
		"the right one, cut":           right[:len(right)-1],
	}
	_, nothing := p.call("/c/x/y/z")
	for what, path := range forged {
		if code, answer := p.call(path); code != http.StatusNotFound || answer != nothing {
			t.Errorf("%s: %q, want %q", what, answer, nothing)
		}
	}
	if code, answer := p.call(caller{"broken", "", validate}.path(key)); code != http.StatusServiceUnavailable {
		t.Errorf("a member that is not ready: %s", answer)
	}
	before, goroutines := series(t), runtime.NumGoroutine()
	for i := range 1000 {
		path := "/c/member-" + strconv.Itoa(i) + "/" + strconv.Itoa(i) + ".key/path-" + strconv.Itoa(i)
		if code, answer := p.call(path); code != http.StatusNotFound {
			t.Fatal(answer)
		}
	}
	if after := series(t); after != before {
		t.Errorf("there were %d series, and are %d", before, after)
	}
	w.eventually("no goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines+20 })
}

// series returns how many series the webhooks have.
func series(t *testing.T) (count int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.Contains(family.GetName(), "webhook") {
			count += len(family.GetMetric())
		}
	}
	return count
}

// dial opens a connection as a member would, which speaks HTTP/1.1.
func (p *program) dial() *tls.Conn {
	t := p.world.t
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(p.hooks.keeper.store.now.Load().bundle())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.opts.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // perhaps the other side has closed it
	return conn.(*tls.Conn)
}

// ask sends the head of a request, and of its body the beginning alone.
func ask(t *testing.T, conn io.Writer, path string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", path)
	if err != nil {
		t.Fatal(err)
	}
}

// TestABodyThatDoesNotEndEndsItsConnection, whoever sends it.
func TestABodyThatDoesNotEndEndsItsConnection(t *testing.T) {
	w := newWorld(t, 1)
	p := w.newProgram("Ignore", nil)
	p.hooks.server.longest = time.Second
	p.start()
	w.isAsked(w.Members[0])
	for what, path := range map[string]string{
		"a member":               p.path("member-1", "/validate--v1-configmap"),
		"a stranger":             caller{"member-1", "", "/validate--v1-configmap"}.path(newKey()),
		"one that asks for else": "/elsewhere",
		"one that is redirected": "/c//x",
	} {
		conn := p.dial()
		ask(t, conn, path)
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil { // it ends a test that fails
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection of %s stays", what)
		}
	}
}

// TestAnAnswerThatNobodyReadsEnds, so that its member can be drained.
func TestAnAnswerThatNobodyReadsEnds(t *testing.T) {
	ended := make(chan struct{})
	p := withHandler(t, newWorld(t, 1), 1000, time.Second, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	ask(t, p.dial(), p.path("member-1", validatePath))
	select {
	case <-ended:
	case <-time.After(30 * time.Second): // it ends a test that fails
		t.Error("it is still written")
	}
}

// withHandler returns a program that serves, and has a handler for requests whose body has size bytes.
func withHandler(t *testing.T, w *world, size int, longest time.Duration, handler http.HandlerFunc) *program {
	t.Helper()
	p := w.newProgram("Ignore", nil)
	p.hooks.server.longest = longest
	p.handle(size, handler)
	p.start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	return p
}

// handle replaces what validates, for requests whose body has size bytes.
func (p *program) handle(size int, handler http.HandlerFunc) {
	validate := p.hooks.registry.handlers[validatePath]
	p.hooks.registry.handlers[validatePath] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != int64(size) {
			validate.ServeHTTP(w, r)
			return
		}
		handler(w, r)
	})
}

// TestAHandlerEndsInTime: its context does.
func TestAHandlerEndsInTime(t *testing.T) {
	ended := make(chan error, 1)
	p := withHandler(t, newWorld(t, 1), 1000, time.Second, func(_ http.ResponseWriter, r *http.Request) {
		_, bounded := r.Context().Deadline()
		if !bounded {
			ended <- errors.New("there is no deadline")
			return
		}
		<-r.Context().Done()
		ended <- nil
	})
	ask(t, p.dial(), p.path("member-1", validatePath))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestABodyHasAnEnd, for handlers of any kind.
func TestABodyHasAnEnd(t *testing.T) {
	const size = largestReview + 1
	read := make(chan error, 1)
	p := withHandler(t, newWorld(t, 1), size, longestReview, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	_, _ = p.send(p.path("member-1", validatePath), strings.NewReader(strings.Repeat(" ", size))) // which may be cut
	var tooLarge *http.MaxBytesError
	if err := <-read; !errors.As(err, &tooLarge) {
		t.Errorf("reading %d bytes: %v", size, err)
	}
}

// TestAThousandMembersThatSendMuchLeaveMemoryForOneMore: each takes what it can get, and the whole has a bound.
func TestAThousandMembersThatSendMuchLeaveMemoryForOneMore(t *testing.T) {
	t.Parallel()
	turns, taken := turns{}, map[mcreconcile.ClusterName][]int64{}
	for i := range 1000 {
		name := mcreconcile.ClusterName(fmt.Sprint(i))
		for size := int64(largestReview); size > 0; {
			if turns.take(name, size) {
				taken[name] = append(taken[name], size)
			} else {
				size /= 2
			}
		}
	}
	if got := len(taken["0"]); got < 8 {
		t.Errorf("the first has %d reviews, and could have eight of the largest", got)
	}
	if most := int64(reviewBytes + len(taken)*reviewFloor); turns.bytes > most {
		t.Errorf("all have %d bytes, and %d is the bound", turns.bytes, most)
	}
	if !turns.take("quiet", reviewFloor) {
		t.Fatal("a member that sends little is not served")
	}
	turns.give("quiet", reviewFloor)
	for name, sizes := range taken {
		for _, size := range sizes {
			turns.give(name, size)
		}
	}
	if turns.bytes != 0 || len(turns.of) != 0 {
		t.Errorf("after all are served, %d members have %d bytes", len(turns.of), turns.bytes)
	}
}

// TestOneMemberLeavesRoomForOthers, however much it asks at once.
func TestOneMemberLeavesRoomForOthers(t *testing.T) {
	w := newWorld(t, 2)
	begun, end := make(chan struct{}), make(chan struct{})
	p := withHandler(t, w, len("{}"), longestReview, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	var all sync.WaitGroup
	ask := func(name fleet.ClusterName) { all.Go(func() { p.call(p.path(name, validatePath)) }) }
	for range reviewsAtOnce {
		ask("member-1")
		<-begun
	}
	if code, answer := p.call(p.path("member-1", validatePath)); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", answer)
	}
	ask("member-2")
	<-begun
	close(end)
	all.Wait()
	ask("member-1")
	<-begun
	all.Wait()
}

// TestLargeReviewsOfOneMemberLeaveMemoryForOthers: they wait for their verdicts with all that they have sent.
func TestLargeReviewsOfOneMemberLeaveMemoryForOthers(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	p := withHandler(t, newWorld(t, 2), largestReview, longestReview, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	large := strings.Repeat(" ", largestReview)
	var all sync.WaitGroup
	ask := func(name fleet.ClusterName) {
		all.Go(func() { _, _ = p.send(p.path(name, validatePath), strings.NewReader(large)) }) // the answer may come before all was sent
		<-begun
	}
	const several = reviewBytes / reviewShare / largestReview
	for range several {
		ask("member-1")
	}
	if code, answer := p.call(p.path("member-1", validatePath)); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", answer)
	}
	ask("member-2")
	close(end)
	all.Wait()
	for range several {
		ask("member-1")
	}
	all.Wait()
}

func TestAReviewThatDoesNotSayItsSizeCountsAsTheLargest(t *testing.T) {
	t.Parallel()
	for says, want := range map[int64]int64{-1: largestReview, 0: 0, 100: 100, largestReview + 1: largestReview} {
		if got := sizeOf(&http.Request{ContentLength: says}); got != want {
			t.Errorf("sizeOf %d is %d, want %d", says, got, want)
		}
	}
}

// TestAMemberIsDrainedAfterItsRequests, which are told.
func TestAMemberIsDrainedAfterItsRequests(t *testing.T) {
	begun, told, end := make(chan error), make(chan struct{}), make(chan struct{})
	p := withHandler(t, newWorld(t, 1), 1000, longestReview, func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.Context().Err()
		<-r.Context().Done()
		close(told)
		<-end
	})
	path := p.path("member-1", validatePath)
	ask(t, p.dial(), path)
	if err := <-begun; err != nil {
		t.Errorf("the request has begun with: %v", err)
	}
	drained := p.Remove("member-1")
	<-told
	select {
	case <-drained:
		t.Error("it is drained while it is asked about")
	default:
	}
	if code, answer := p.call(path); code == http.StatusOK {
		t.Errorf("a member that is being drained: %s", answer)
	}
	close(end)
	<-drained
	if code, answer := p.call(path); code != http.StatusNotFound {
		t.Errorf("a member that is gone: %s", answer)
	}
}

// TestAHandlerOfAnyKindServesMembers as it serves one cluster.
func TestAHandlerOfAnyKindServesMembers(t *testing.T) {
	w := newWorld(t, 1)
	w.register = func(mgr ctrl.Manager) error { // as for one cluster
		decoder := admission.NewDecoder(mgr.GetScheme())
		mgr.GetWebhookServer().Register("/mutate--v1-configmap", &webhook.Admission{
			Handler: admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
				cm := &corev1.ConfigMap{}
				if err := decoder.Decode(req, cm); err != nil {
					return admission.Errored(http.StatusBadRequest, err)
				}
				name, _ := mcreconcile.ClusterNameFrom(ctx)
				cm.Data = map[string]string{"cluster": string(name)}
				changed, err := json.Marshal(cm)
				if err != nil {
					return admission.Errored(http.StatusInternalServerError, err)
				}
				return admission.PatchResponseFromRaw(req.Object.Raw, changed)
			}),
		})
		return nil
	}
	w.newProgram("Fail", nil).start()
	w.eventually("it is asked", func() bool {
		cm, err := w.write(w.Members[0], "any")
		return err == nil && cm.Data["cluster"] == "member-1"
	})
	if c := w.configuration(w.Members[0]); c != nil {
		t.Errorf("a webhook that is not registered is installed: %v", c)
	}
}

// TestReadinessSaysThatMembersAreServed, and not before there is a certificate.
func TestReadinessSaysThatMembersAreServed(t *testing.T) {
	p := newWorld(t, 0).newProgram("Ignore", nil)
	check := p.hooks.GetWebhookServer().StartedChecker()
	if check(nil) == nil {
		t.Error("it serves before it was started")
	}
	p.start()
	p.world.eventually("it serves", func() bool { return check(nil) == nil })
	if code, answer := p.call("/"); code != http.StatusNotFound {
		t.Error(answer)
	}
	p.hooks.keeper.store.now.Store(nil)
	if check(nil) == nil {
		t.Error("it serves without a certificate")
	}
}
