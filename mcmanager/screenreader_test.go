package mcmanager

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// devtools is what a browser's page is asked by: https://chromedevtools.github.io/devtools-protocol/.
type devtools struct {
	t    *testing.T
	conn *websocket.Conn
	last int
}

var listening = regexp.MustCompile(`DevTools listening on ws://([^/]+)/`)

// newDevtools starts a browser that shows nothing yet. It ends with the test.
func newDevtools(t *testing.T, browser string) *devtools {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-extensions", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // it was killed
	})
	var host string
	for lines := bufio.NewScanner(stderr); host == "" && lines.Scan(); {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			host = found[1]
		}
	}
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, stderr) // else the browser would wait until that is read
	}()
	if host == "" {
		t.Fatal("the browser has ended, or closed its output, and has not said where it can be asked")
	}
	conn, err := websocket.Dial(targetOf(t, host), "", "http://"+host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &devtools{t: t, conn: conn}
}

// targetOf returns where the page of a browser can be asked.
func targetOf(t *testing.T, host string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/json/list", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var targets []struct {
		Type    string `json:"type"`
		Address string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&targets); err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if target.Type == "page" {
			return target.Address
		}
	}
	t.Fatalf("the browser has no page: %+v", targets)
	return ""
}

// message is one of the browser: an event, or an answer.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// call asks the page for something, and reads the answer into result. What happens meanwhile is left out.
func (d *devtools) call(method string, params map[string]any, result any) {
	d.t.Helper()
	d.last++
	if err := websocket.JSON.Send(d.conn, map[string]any{"id": d.last, "method": method, "params": params}); err != nil {
		d.t.Fatal(err)
	}
	answer := d.await(func(m message) bool { return m.ID == d.last })
	if answer.Error != nil {
		d.t.Fatalf("%s: %s", method, answer.Error)
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		d.t.Fatal(err)
	}
}

func (d *devtools) await(is func(message) bool) message {
	d.t.Helper()
	for {
		var m message
		if err := websocket.JSON.Receive(d.conn, &m); err != nil {
			d.t.Fatal(err)
		}
		if is(m) {
			return m
		}
	}
}

// told is something that a screen reader is told.
type told struct {
	Ignored bool
	Role    struct{ Value string }
	Name    struct{ Value string }
}

// tell shows a page on a screen, and returns what a screen reader is told of it.
func (d *devtools) tell(address string, width int) []told {
	d.t.Helper()
	var none struct{}
	d.call("Page.enable", nil, &none)
	d.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, &none)
	d.call("Page.navigate", map[string]any{"url": address}, &none)
	d.await(func(m message) bool { return m.Method == "Page.loadEventFired" })
	var tree struct{ Nodes []told }
	d.call("Accessibility.getFullAXTree", nil, &tree)
	return slices.DeleteFunc(tree.Nodes, func(n told) bool { return n.Ignored })
}

// TestAScreenReaderIsToldThePages: what the browser tells it has one main part, tables with their captions and all of their heads and cells,
// and a name for all that can be used, on a phone as well.
func TestAScreenReaderIsToldThePages(t *testing.T) {
	browser, address := chromium(t), pages(t)
	for _, page := range []string{"fleet", "member"} {
		for width, screen := range map[int]string{375: "narrow", 1400: "wide"} {
			t.Run(page+" "+screen, func(t *testing.T) {
				d := newDevtools(t, browser)
				counts := map[string]int{}
				for _, n := range d.tell(address+"/"+page, width) {
					counts[n.Role.Value]++
					if mustBeNamed[n.Role.Value] && strings.TrimSpace(n.Name.Value) == "" {
						t.Errorf("a %s has no name", n.Role.Value)
					}
				}
				html := browse(t, browser, address+"/"+page, "--dump-dom")
				for role, tag := range map[string]string{
					"main": "<main", "table": "<table", "columnheader": `<th scope="col"`, "rowheader": `<th scope="row"`, "cell": "<td", "region": "<section", "link": "<a ",
				} {
					if want := strings.Count(html, tag); counts[role] != want || want == 0 {
						t.Errorf("it is told of %d with the role %s, want %d; in all %v", counts[role], role, want, counts)
					}
				}
			})
		}
	}
}

// mustBeNamed are the roles that say nothing without a name.
var mustBeNamed = map[string]bool{
	"RootWebArea": true, "heading": true, "table": true, "region": true, "navigation": true, "search": true, "link": true, "button": true,
	"searchbox": true, "combobox": true, "columnheader": true, "rowheader": true,
}
