package fleet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
)

// TestAConnectionMayTakeAsLongToOpenAsItsProbe: what is open has no such limit.
func TestAConnectionMayTakeAsLongToOpenAsItsProbe(t *testing.T) {
	cases := map[string]struct {
		probe, want time.Duration
		opened      bool
	}{
		"NoProbe":    {want: openWithin},
		"ShortProbe": {probe: time.Second, want: openWithin},
		"LongProbe":  {probe: time.Hour, want: time.Hour},
		"Opened":     {opened: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialed := make(chan context.Context, 1)
				if tc.probe == 0 {
					dialed <- t.Context()
				} else {
					probe, cancel := context.WithTimeout(t.Context(), tc.probe)
					defer cancel()
					w := &wire{ready: func(asked context.Context, _ http.RoundTripper) error {
						dialed <- context.WithoutCancel(asked) // as net/http does
						return nil
					}}
					if err := w.probe(probe); err != nil {
						t.Fatal(err)
					}
				}
				near, far := net.Pipe()
				defer func() { _ = far.Close() }()
				l := newLine(<-dialed, near, &generation{})
				begin := time.Now()
				if tc.opened {
					l.open()
					time.AfterFunc(time.Hour, func() { _ = far.Close() })
				}
				_, err := l.Read(make([]byte, 1))
				took := time.Since(begin)
				if tc.opened && !errors.Is(err, io.EOF) || !tc.opened && (!errors.Is(err, os.ErrDeadlineExceeded) || took != tc.want) {
					t.Errorf("after %s: %v; want a time-out after %s", took, err, tc.want)
				}
			})
		})
	}
}

// TestARequestMayTakeLongerThanItsConnectionToOpen: such as one that lists much.
func TestARequestMayTakeLongerThanItsConnectionToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := newGeneration(&rest.Config{
			Host: "http://slow",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = http.ReadRequest(bufio.NewReader(far))
					<-time.After(2 * openWithin)
					_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}()
				return near, nil
			},
		}, &credplugin.Plugin{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.finish()
		w := &wire{most: 1 << 20}
		w.health = newHealth(Options{}.withDefaults().Health, w, func(State, error) {}, func() {})
		w.current.Store(g)
		if err := get(t, w, "http://slow"); err != nil {
			t.Error(err)
		}
	})
}

// TestOnlyCustomDialersKeepTheLimitOfNetHTTP: their connections may know no deadlines.
func TestOnlyCustomDialersKeepTheLimitOfNetHTTP(t *testing.T) {
	for name, cfg := range map[string]*rest.Config{
		"Own":    {Host: "https://a"},
		"Custom": {Host: "https://a", Dial: (&net.Dialer{}).DialContext},
	} {
		g, err := newGeneration(cfg, &credplugin.Plugin{})
		if err != nil {
			t.Fatal(err)
		}
		rt := g.RoundTripper
		for {
			wrapper, ok := rt.(utilnet.RoundTripperWrapper)
			if !ok {
				break
			}
			rt = wrapper.WrappedRoundTripper()
		}
		limit := rt.(*http.Transport).TLSHandshakeTimeout
		if (limit == 0) != (cfg.Dial == nil) {
			t.Errorf("%s: a TLS handshake may take %s", name, limit)
		}
	}
}

// TestWhatArrivesIsHeard, and the end of a connection is nothing that arrives.
func TestWhatArrivesIsHeard(t *testing.T) {
	for name, send := range map[string]string{"bytes": "x", "nothing": ""} {
		near, far := net.Pipe()
		l := newLine(t.Context(), near, &generation{})
		go func() {
			_, _ = io.WriteString(far, send)
			_ = far.Close()
		}()
		_, _ = io.ReadAll(l)
		if heard := l.generation.heard.Load() != 0; heard != (send != "") {
			t.Errorf("%s: it was heard: %t", name, heard)
		}
	}
}

// TestRequestsThatWaitForAProofShareIt, also if it fails.
func TestRequestsThatWaitForAProofShareIt(t *testing.T) {
	for name, why := range map[string]error{"it works": nil, "it fails": errNo} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				l := newLine(t.Context(), near, &generation{})
				var proofs atomic.Int64
				answer, results := make(chan struct{}), make(chan error, 3)
				for range 3 {
					go func() {
						results <- l.prove(t.Context(), true, func(context.Context) error {
							proofs.Add(1)
							<-answer
							return why
						})
					}()
				}
				synctest.Wait()
				close(answer)
				for range 3 {
					if err := <-results; !errors.Is(err, why) {
						t.Errorf("prove() = %v, want %v", err, why)
					}
				}
				if proofs.Load() != 1 {
					t.Errorf("%d proofs, want one", proofs.Load())
				}
				_ = near.Close()
				_ = far.Close()
			})
		})
	}
}

// TestWhoDoesNotWaitForAProofLeavesTheLineToOthers, unless there can be none or they have waited for long.
func TestWhoDoesNotWaitForAProofLeavesTheLineToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		shared bool
		age    time.Duration
		open   bool
	}{
		"shared": {true, proveWithin, true}, "shared, and old": {true, proveWithin + time.Second, false}, "its own": {false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer func() { _ = far.Close() }()
				l := newLine(t.Context(), near, &generation{})
				<-time.After(c.age)
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(errNo)
				err := l.prove(ctx, c.shared, func(context.Context) error { return errors.New("it was not asked") })
				closed := near.SetDeadline(time.Time{}) != nil
				if err == nil || closed == c.open {
					t.Errorf("prove() = %v; the line is closed: %t, want %t", err, closed, !c.open)
				}
				_ = near.Close()
			})
		})
	}
}
