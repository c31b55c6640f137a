package mcmanager

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// chromium returns the program of a browser, or skips the test and says so.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-headless-shell", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil && name != "" {
			return path
		}
	}
	t.Skip("SKIPPED: NO BROWSER HAS SHOWN THE PAGE ON THIS MACHINE. Install Debian's package chromium, or name the program in CHROMIUM.")
	return ""
}

// browse lets a browser show a page, and returns what it printed. With BROWSER_SHOTS, a folder, it keeps pictures there.
func browse(t *testing.T, browser, address string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--user-data-dir=" + t.TempDir(),
	}, append(args, address)...)
	out, err := exec.CommandContext(ctx, browser, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", browser, args, err)
	}
	return string(out)
}

// pages serves the page of a fleet and that of a member, both in hostile words, with a probe that measures what the browser has
// made of them. The page itself has no scripts, so the probe looks at it from outside, in a frame as wide as asked for.
func pages(t *testing.T) string {
	t.Helper()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	worst := worstSheet(at)
	all := newTable([]fleet.Status{worst.Status, {Name: "east", State: fleet.Ready, Since: at}}, []fleet.Problem{{Provider: hostile, About: hostile, Since: at}}, filter{})
	all.Time, all.Role = at, alone
	mux := http.NewServeMux()
	for path, render := range map[string]func() ([]byte, error){"/fleet": all.render, "/member": worst.render} {
		page, err := render()
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
		mux.HandleFunc("/probe"+path, func(w http.ResponseWriter, req *http.Request) {
			probe := strings.ReplaceAll(strings.ReplaceAll(probeHTML, "PATH", path), "WIDTH", map[bool]string{true: "375", false: "1400"}[req.URL.RawQuery == "narrow"])
			_, _ = w.Write([]byte(probe))
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

const probeHTML = `<!DOCTYPE html><title>probe</title><iframe src="PATH" style="width:WIDTHpx;height:900px;border:0"></iframe><script>
onload = () => {
  const d = document.querySelector("iframe").contentDocument, w = d.defaultView, all = s => [...d.querySelectorAll(s)]
  const light = c => { const v = c.match(/[\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4 }); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] }
  const paper = light(w.getComputedStyle(d.body).backgroundColor)
  const contrasts = all("body *").filter(e => e.textContent.trim() && !e.closest("select,button,input")).map(e => { const i = light(w.getComputedStyle(e).color); return (Math.max(i, paper) + .05) / (Math.min(i, paper) + .05) })
  document.title = "found " + JSON.stringify({
    overflow: d.documentElement.scrollWidth > d.documentElement.clientWidth,
    scripts: all("script").length, main: all("main").length, h1: all("h1").length,
    nocaption: all("table").filter(t => !t.caption || !t.caption.textContent).length,
    noscope: all("th").filter(t => !t.scope).length, nolabel: all("section").filter(s => !d.getElementById(s.getAttribute("aria-labelledby"))).length,
    lang: d.documentElement.lang, faint: contrasts.filter(c => c < 4.5).length, seen: contrasts.length > 20,
  })
}</script>`

// TestABrowserShowsThePages: nothing is to be scrolled sideways, wide or narrow, nothing is faint, by day or by night, nothing runs,
// and what a screen reader goes by is there.
func TestABrowserShowsThePages(t *testing.T) {
	browser, address := chromium(t), pages(t)
	want := `{"overflow":false,"scripts":0,"main":1,"h1":1,"nocaption":0,"noscope":0,"nolabel":0,"lang":"en","faint":0,"seen":true}`
	found := regexp.MustCompile(`<title>found (.*?)</title>`)
	for _, page := range []string{"fleet", "member"} {
		for _, width := range []string{"narrow", "wide"} {
			for theme, flag := range map[string]string{"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"} {
				t.Run(page+" "+width+" "+theme, func(t *testing.T) {
					dom := browse(t, browser, address+"/probe/"+page+"?"+width, "--window-size=1500,1000", flag, "--dump-dom")
					if got := found.FindStringSubmatch(dom); got == nil || got[1] != want {
						t.Errorf("the browser found %v, want %s", got, want)
					}
					if shots := os.Getenv("BROWSER_SHOTS"); shots != "" {
						browse(t, browser, address+"/probe/"+page+"?"+width, "--window-size=1420,900", flag, "--screenshot="+filepath.Join(shots, page+"-"+width+"-"+theme+".png"))
					}
				})
			}
		}
	}
}
