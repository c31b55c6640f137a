// Package plugin_test runs kubebuilder with the plugin of cmd/kubebuilder-fleet, as users do: from an empty folder to a running
// fleet, and with a project that was scaffolded before. The commands go to the module proxy as those of users do.
package plugin_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

// plugins is the folder in which kubebuilder looks for plugins.
var plugins string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if plugins, err = os.MkdirTemp("", "kubebuilder-plugins-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(plugins) }()
	return pool.Run(m)
}

// release is a release of kubebuilder, as the go command builds it.
type release struct{ version, modfile, pkg string }

var (
	oldest = release{"v4.5.0", "-modfile=oldest.mod", "sigs.k8s.io/kubebuilder/v4/cmd"}
	newest = release{"v4.10.1", "-modfile=go.mod", "sigs.k8s.io/kubebuilder/v4"}
)

// setUp is what all tests of this package share: programs, which are built once.
type setUp struct {
	root     string // of this repository
	programs map[release]string
}

var shared = sync.OnceValues(func() (s setUp, err error) {
	s.root, err = filepath.Abs("../..")
	if err != nil {
		return s, err
	}
	module := filepath.Join(s.root, "cmd", "kubebuilder-fleet")
	s.programs = map[release]string{}
	for _, r := range []release{oldest, newest} {
		path, err := output(module, nil, "go", "tool", r.modfile, "-n", r.pkg) // the go command builds it, and keeps it in its cache
		if err != nil {
			return s, err
		}
		s.programs[r] = strings.TrimSpace(path)
	}
	_, err = output(module, []string{"EXTERNAL_PLUGINS_PATH=" + plugins}, "go", "run", "-trimpath", ".", "install")
	return s, err
})

func output(folder string, env []string, program string, args ...string) (string, error) {
	var out, log bytes.Buffer
	cmd := exec.Command(program, args...) //nolint:noctx // tests share it
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, append(os.Environ(), env...), &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s in %s: %w\n%s", cmd, folder, err, log.String())
	}
	return out.String(), nil
}

// project is a folder in which kubebuilder is run.
type project struct {
	t      *testing.T
	setUp  setUp
	folder string
	env    []string
}

func newProject(t *testing.T, r release) *project {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(s.programs[r], filepath.Join(bin, "kubebuilder")); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{bin, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, string(os.PathListSeparator))
	env := append(os.Environ(), "PATH="+path, "EXTERNAL_PLUGINS_PATH="+plugins, "GOFLAGS="+os.Getenv("GOFLAGS")+" "+buildFlags(),
		"MAKEFLAGS=", "MAKELEVEL=")
	folder := filepath.Join(t.TempDir(), "guestbook") // which becomes the project's name
	if err := os.Mkdir(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	return &project{t, s, folder, env}
}

// buildFlags are those of this test, so that what its binary consists of need not be compiled anew.
func buildFlags() string {
	info, _ := debug.ReadBuildInfo()
	flags := "-trimpath"
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			flags += " -race"
		}
	}
	return flags
}

// command returns a command line that is to run in the project's folder.
func (p *project) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), "bash", "-c", line)
	cmd.Dir, cmd.Env = p.folder, p.env
	return cmd
}

// run runs a command line, and returns what it has written.
func (p *project) run(line string) string {
	p.t.Helper()
	out, err := p.command(line).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func (p *project) read(name string) string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.folder, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(content)
}

// change replaces a text of a file.
func (p *project) change(name, old, with string) {
	p.t.Helper()
	text := p.read(name)
	if !strings.Contains(text, old) {
		p.t.Fatalf("%s lacks %q", name, old)
	}
	if err := os.WriteFile(filepath.Join(p.folder, name), []byte(strings.ReplaceAll(text, old, with)), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// check builds the project, and runs its tests: they start control planes by mctest, and by envtest for webhooks.
func (p *project) check() {
	p.t.Helper()
	p.run("make manifests generate")
	p.run("go vet ./...")
	p.run("go test -vet=off -ldflags=-w ./internal/...")
}

func (p *project) replaced() string { return " --fleet-runtime-replace=" + p.setUp.root }

// threeCommands returns the lines of docs/kubebuilder.md that lead from nothing to a running fleet.
func threeCommands(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubebuilder.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- run by test/plugin -->\n```console\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/kubebuilder.md lacks the commands")
	}
	var lines []string
	for line := range strings.Lines(string(block[1])) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	}
	if len(lines) != 3 {
		t.Fatalf("docs/kubebuilder.md has the commands %q, want three", lines)
	}
	return lines
}

// TestThreeCommandsLeadToARunningFleet runs those of docs/kubebuilder.md. Each member then has a guestbook reconciled.
func TestThreeCommandsLeadToARunningFleet(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 2})
	p := newProject(t, newest)
	p.env = append(p.env, "KUBECONFIG="+kubeconfig(t, clusters))
	commands := threeCommands(t)
	p.run(commands[0] + p.replaced())
	p.run(commands[1])

	// The scaffolded reconciler does nothing, and others on this machine use the port of the probes.
	p.change("internal/controller/guestbook_controller.go", "// TODO(user): your logic here", `logf.FromContext(ctx).Info("Reconciled")`)
	p.change("cmd/main.go", `":8081"`, `"0"`)
	p.change("config/samples/webapp_v1_guestbook.yaml", "spec:\n", "spec: {}\n")
	log := p.start(commands[2])
	for _, member := range []string{"east", "west"} {
		log.writes(t, "Engaged", member)
		p.run("kubectl --context " + member + " wait --for=condition=Established --timeout=5m --all customresourcedefinitions")
		p.run("kubectl --context " + member + " apply -f config/samples/webapp_v1_guestbook.yaml")
		log.writes(t, "Reconciled", member)
	}
	log.writes(t, "The controller runs", "every member")
	p.run("go test -vet=off -ldflags=-w ./internal/...")
	if note := p.run("kubebuilder edit --plugins fleet.fleet-runtime.dev/v1" + p.replaced()); !strings.Contains(note, "Nothing is to be changed") {
		t.Errorf("kubebuilder edit finds something to do in a project that the plugin has made:\n%s", note)
	}
}

// kubeconfig returns the path of a kubeconfig with the contexts hub, which is the current one, east and west.
func kubeconfig(t *testing.T, clusters *mctest.Fleet) (path string) {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	merged.CurrentContext = "hub"
	for name, cp := range map[string]*mctest.ControlPlane{"hub": clusters.Local, "east": clusters.Members[0], "west": clusters.Members[1]} {
		one, err := clientcmd.Load(cp.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		current := one.Contexts[one.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a command line until the test ends, however that comes: then its standard input does, and its processes are ended.
func (p *project) start(line string) *written {
	p.t.Helper()
	w := &written{more: make(chan struct{}, 1), ended: make(chan struct{})}
	const end = "kill -TERM -- -$$" // all of the group: make and go run have children
	cmd := p.command("(" + line + "; " + end + ") & cat; " + end)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Cancel = stdin.Close
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		_ = cmd.Wait() // it fails when it is ended
	}()
	p.t.Cleanup(func() { // the test's context is done by now
		<-w.ended
		if p.t.Failed() {
			p.t.Logf("%s has written:\n%s", line, w.text())
		}
	})
	return w
}

// written is what a program has written until now.
type written struct {
	mu    sync.Mutex
	all   bytes.Buffer
	more  chan struct{} // something was written since it was last received from
	ended chan struct{} // closed when the program has ended
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.all.Write(p)
}

func (w *written) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// writes waits until the program has written a line that has all these words. The first lines come when it was compiled, which
// takes as long as it takes.
func (w *written) writes(t *testing.T, words ...string) {
	t.Helper()
	deadline, cancel := t.Context(), func() {}
	if at, ok := t.Deadline(); ok {
		deadline, cancel = context.WithDeadline(t.Context(), at.Add(-time.Minute))
	}
	defer cancel()
	for !hasLineWith(w.text(), words) {
		select {
		case <-w.more:
		case <-w.ended:
			t.Fatalf("the program has ended, and has written no line with %q", words)
		case <-deadline.Done():
			t.Fatalf("the program has written no line with %q", words)
		}
	}
}

func hasLineWith(text string, words []string) bool {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

// TestEveryProviderIsScaffolded and what is scaffolded builds. The provider contexts is that of the three commands.
func TestEveryProviderIsScaffolded(t *testing.T) {
	for provider, r := range map[string]release{"kubeconfig": oldest, "capi": newest, "clusterprofile": oldest, "kind": newest} {
		t.Run(provider+" by kubebuilder "+r.version, func(t *testing.T) {
			p := newProject(t, r)
			p.run("kubebuilder init --plugins go/v4,fleet.fleet-runtime.dev/v1 --domain example.com --repo example.com/guestbook" +
				" --project-name guestbook --skip-go-version-check --fetch-deps=false --provider " + provider + p.replaced())
			p.run("go vet ./...")
			p.run("kubectl kustomize config/hub")
			p.run("kubectl kustomize config/member")
			if main := p.read("cmd/main.go"); !strings.Contains(main, "mcmanager.New(ctrl.GetConfigOrDie(), "+provider+".Provider{") {
				t.Errorf("main.go does not have the provider %s:\n%s", provider, main)
			}
		})
	}
}

// TestAProjectThatWasScaffoldedBeforeIsMoved with a webhook, and builds and passes its tests then. What it is like in detail,
// and that of a project with more in it, is tested in the plugin's own package.
func TestAProjectThatWasScaffoldedBeforeIsMoved(t *testing.T) {
	p := newProject(t, oldest)
	p.run("kubebuilder init --domain example.com --repo example.com/guestbook --project-name guestbook --skip-go-version-check --fetch-deps=false")
	p.run("kubebuilder create api --group webapp --version v1 --kind Guestbook --resource --controller --make=false")
	p.run("kubebuilder create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation --make=false")
	notes := p.run("kubebuilder edit --plugins fleet.fleet-runtime.dev/v1" + p.replaced())
	for _, want := range []string{"changed: cmd/main.go", "webhooks serve the hub", "config/rbac/role.yaml: delete it", "PROJECT:"} {
		if !strings.Contains(notes, want) {
			t.Errorf("kubebuilder edit does not say %q:\n%s", want, notes)
		}
	}
	p.run("go mod tidy")
	p.check()
	p.run("git init -q . && git add -A")
	if notes := p.run("kubebuilder edit --plugins fleet.fleet-runtime.dev/v1" + p.replaced()); !strings.Contains(notes, "Nothing is to be changed") {
		t.Errorf("kubebuilder edit changes the project again:\n%s", notes)
	}
	if changed := p.run("git status --short | grep -v '^A ' || true"); changed != "" {
		t.Errorf("kubebuilder edit has changed these files again:\n%s", changed)
	}

	// The next API runs on the fleet as soon as PROJECT names the plugin.
	p.change("PROJECT", "- go.kubebuilder.io/v4\n", "- go.kubebuilder.io/v4\n- fleet.fleet-runtime.dev/v1\n")
	for _, again := range []string{"", " --force"} {
		p.run("kubebuilder create api --group webapp --version v1 --kind Visitor --resource --controller --make=false" + again)
		if main := p.read("cmd/main.go"); strings.Count(main, "controller.SetupVisitorWithManager(mgr)") != 1 {
			t.Errorf("the controller of the next API is not run once on the fleet after create api%s:\n%s", again, main)
		}
	}
	p.run("make generate")
	p.run("go vet ./...")
}
