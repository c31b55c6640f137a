package mcwebhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

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
	forged := map[string]string{
		"a key of another member":      strings.Replace(right, "/member-1/", "/member-2/", 1),
		"another member's identity":    "/c/member-1/" + strings.SplitN(member2, "/", 4)[3],
		"a member that is not there":   strings.Replace(right, "/member-1/", "/member-9/", 1),
		"one that was never there":     caller{"member-9", "", validate}.path(key),
		"another cluster of that name": caller{"member-1", "another", validate}.path(key),
		"a key of another secret":      caller{"member-1", "", validate}.path(newKey()),
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
	w := newWorld(t, 1)
	p := w.newProgram("Ignore", nil)
	p.hooks.server.longest = time.Second
	ended := make(chan struct{})
	const hook = "/validate--v1-configmap"
	validate := p.hooks.registry.handlers[hook]
	p.hooks.registry.handlers[hook] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 1000 {
			validate.ServeHTTP(w, r)
			return
		}
		defer close(ended)
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	p.start()
	w.isAsked(w.Members[0])
	ask(t, p.dial(), p.path("member-1", hook))
	select {
	case <-ended:
	case <-time.After(30 * time.Second): // it ends a test that fails
		t.Error("it is still written")
	}
}
