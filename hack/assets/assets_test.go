package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestFolderThatHasAllIsTakenAsItIs(t *testing.T) {
	m := newMachine(t)
	given := m.install("given", names()...)
	t.Setenv("KUBEBUILDER_ASSETS", given)
	if got := m.provide(); got != given {
		t.Errorf("got %s, want %s", got, given)
	}
	m.ran()
}

func TestFolderOfAnEarlierRunIsTakenAsItIs(t *testing.T) {
	m := newMachine(t)
	m.install(m.cache, names()...)
	if got := m.provide(); got != m.cache {
		t.Errorf("got %s, want %s", got, m.cache)
	}
	m.ran()
}

func TestProgramsAreBuiltOnceWhereNothingIsInstalled(t *testing.T) {
	m := newMachine(t)
	m.provide()
	m.ran("setup-envtest", "build etcd", "build kubectl", "build kube-apiserver", "build kube-controller-manager")
	if got := m.provide(); got != m.cache {
		t.Errorf("the second run got %s, want %s", got, m.cache)
	}
	m.ran() // nothing more
}

func TestWhatSetupEnvtestHasIsLinkedAndTheRestIsBuilt(t *testing.T) {
	m := newMachine(t)
	installed := m.install("installed", "etcd", "kubectl", "kube-apiserver")
	t.Setenv("FAKE_SETUP_ENVTEST", installed)
	m.provide()
	m.ran("setup-envtest", "build kube-controller-manager")
	if target, err := os.Readlink(filepath.Join(m.cache, "etcd")); err != nil || target != filepath.Join(installed, "etcd") {
		t.Errorf("etcd is a link to %q, error %v", target, err)
	}
}

func TestGivenFolderIsCompletedElsewhere(t *testing.T) {
	m := newMachine(t)
	given := m.install("given", "etcd", "kube-apiserver")
	m.install(m.cache, "kubectl")
	t.Setenv("KUBEBUILDER_ASSETS", given)
	got := m.provide()
	m.ran("build kube-controller-manager") // kubectl was there

	for name, from := range map[string]string{"etcd": given, "kube-apiserver": given, "kubectl": m.cache} {
		if target, err := os.Readlink(filepath.Join(got, name)); err != nil || target != filepath.Join(from, name) {
			t.Errorf("%s is a link to %q, error %v; want one into %s", name, target, err, from)
		}
	}
	if lacking := missing(given); len(lacking) != 2 {
		t.Errorf("the given folder was changed: it lacks %v", lacking)
	}
	t.Setenv("KUBEBUILDER_ASSETS", m.install("other", "etcd"))
	if other := m.provide(); other == got {
		t.Error("two given folders are completed in the same one")
	}
}

func TestLinkToAProgramThatIsGoneIsReplaced(t *testing.T) {
	m := newMachine(t)
	m.install(m.cache, names()...)
	if err := errors.Join(
		os.Remove(filepath.Join(m.cache, "etcd")),
		os.Symlink(filepath.Join(m.root, "gone"), filepath.Join(m.cache, "etcd")),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_SETUP_ENVTEST", m.install("installed", "etcd"))
	m.provide()
	m.ran("setup-envtest")
}

func TestRelativeFolderIsRefused(t *testing.T) {
	m := newMachine(t)
	t.Setenv("KUBEBUILDER_ASSETS", "bin")
	if _, err := provide(t.Context(), false); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("got error %v, want one that asks for an absolute path", err)
	}
	m.ran()
}

func TestInstalledOnlyDownloadsAndBuildsNothing(t *testing.T) {
	m := newMachine(t)
	_, err := provide(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "etcd kubectl kube-apiserver kube-controller-manager") {
		t.Errorf("got error %v, want one that names what is missing", err)
	}
	m.install(m.cache, names()...)
	t.Setenv("KUBEBUILDER_ASSETS", m.install("given", "etcd"))
	if _, err := provide(t.Context(), true); err != nil {
		t.Errorf("what is installed does not suffice: %v", err)
	}
	m.ran()
}

func TestFailedBuildSaysWhyAndLeavesNothingHalfWritten(t *testing.T) {
	m := newMachine(t)
	t.Setenv("FAKE_BREAK", "kube-apiserver")
	_, err := provide(t.Context(), false)
	if err == nil || !strings.Contains(err.Error(), "building kube-apiserver") || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("got error %v, want one that says what failed, and why", err)
	}
	m.holds("etcd", "kubectl")

	m.ran("setup-envtest", "build etcd", "build kubectl", "build kube-apiserver")
	t.Setenv("FAKE_BREAK", "")
	m.provide()
	m.ran("setup-envtest", "build kube-apiserver", "build kube-controller-manager") // the others were kept
}

func TestInterruptedBuildLeavesNothingHalfWritten(t *testing.T) {
	m := newMachine(t)
	m.hangAt("kube-apiserver")
	ctx, cancel := context.WithCancel(t.Context())
	var building sync.WaitGroup
	building.Go(func() {
		if _, err := provide(ctx, false); err == nil {
			t.Error("an interrupted build gives no error")
		}
	})
	m.waitUntilItHangs()
	cancel()
	building.Wait()
	m.holds("etcd", "kubectl")
}

func TestKilledBuildLeavesNothingHalfWritten(t *testing.T) {
	m := newMachine(t)
	m.hangAt("kube-apiserver")
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), "ASSETS_TEST_MAIN=yes")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	m.waitUntilItHangs()
	if err := syscall.Kill(-command.Process.Pid, syscall.SIGKILL); err != nil { // and the go command that it has started
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed

	m.ran("setup-envtest", "build etcd", "build kubectl", "build kube-apiserver")
	t.Setenv("FAKE_HANG", "")
	m.provide() // the lock is free, and what is half written is not taken for a program
	m.ran("setup-envtest", "build kube-apiserver", "build kube-controller-manager")
	m.holds(names()...)
}

func TestTwoRunsAtOnceBuildOnce(t *testing.T) {
	m := newMachine(t)
	var runs sync.WaitGroup
	for range 2 {
		runs.Go(func() { m.provide() })
	}
	runs.Wait()
	m.ran("setup-envtest", "build etcd", "build kubectl", "build kube-apiserver", "build kube-controller-manager")
}

func TestRunThatWaitsForAnotherCanBeInterrupted(t *testing.T) {
	m := newMachine(t)
	unlock, err := lock(t.Context(), m.cache)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := provide(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that of the context", err)
	}
	m.ran()
}

func TestVersionIsThatOfTheEmbeddedModule(t *testing.T) {
	version := kubernetesVersion()
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	if want := fmt.Sprintf("%s.%s.x", major, minor); minorVersion() != want {
		t.Errorf("the minor of %s is %s, want %s", version, minorVersion(), want)
	}
	for _, stamp := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor} {
		if want := " -X k8s.io/component-base/version." + stamp; !strings.Contains(linkerFlags(), want) {
			t.Errorf("the linker flags %q lack %q", linkerFlags(), want)
		}
	}
}

func TestReasonIsTheLineThatSaysMost(t *testing.T) {
	for stderr, want := range map[string]string{
		"go: downloading x v1\nunable to list versions\nexit status 2\n": "unable to list versions",
		"one line": "one line",
		"":         "exit status 1",
		"go: downloading x v1\n\nexit status 2\n": "exit status 1",
	} {
		err := exec.CommandContext(t.Context(), "sh", "-c", "exit 1").Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		exit.Stderr = []byte(stderr)
		if got := reason(fmt.Errorf("wrapped: %w", exit)); got != want && got != "wrapped: "+want {
			t.Errorf("the reason in %q is %q, want %q", stderr, got, want)
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("ASSETS_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// machine is one with an empty cache folder and a go command that only pretends.
type machine struct {
	t           *testing.T
	root, cache string
	log         string // what the go command was asked for
}

// fakeGo notes what it is asked for. It fails as setup-envtest, unless FAKE_SETUP_ENVTEST is a folder, and builds a program
// in two steps; after the first it fails for the program FAKE_BREAK, and hangs for FAKE_HANG.
const fakeGo = `#!/bin/sh
case $1 in
run)
	echo setup-envtest >>"$FAKE_LOG"
	[ -n "$FAKE_SETUP_ENVTEST" ] && echo "$FAKE_SETUP_ENVTEST" && exit
	echo "no such host" >&2
	exit 1
	;;
build)
	while [ "$1" != -o ]; do shift; done
	echo "build $2" >>"$FAKE_LOG"
	echo "some/package" >&2
	printf 'half' >"$2" && chmod +x "$2"
	if [ "$2" = "$FAKE_BREAK" ]; then echo "disk is full" >&2; exit 1; fi
	if [ "$2" = "$FAKE_HANG" ]; then exec cat "$FAKE_FIFO"; fi
	printf ' whole' >>"$2"
	;;
esac
`

func newMachine(t *testing.T) *machine {
	t.Helper()
	root := t.TempDir()
	t.Setenv("HOME", root)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "cache"))
	t.Setenv("KUBEBUILDER_ASSETS", "")
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: root, cache: cache, log: filepath.Join(root, "log")}
	m.write("bin/go", fakeGo)
	t.Setenv("PATH", filepath.Join(root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("FAKE_LOG", m.log)
	return m
}

// provide returns the folder that provide gives, which has every program.
func (m *machine) provide() string {
	m.t.Helper()
	dir, err := provide(m.t.Context(), false)
	if err != nil {
		m.t.Error(err)
	}
	if lacking := missing(dir); len(lacking) > 0 {
		m.t.Errorf("%s lacks %v", dir, lacking)
	}
	return dir
}

// ran checks what the go command was asked for since the last call.
func (m *machine) ran(want ...string) {
	m.t.Helper()
	content, err := os.ReadFile(m.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSpace(string(content)), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		m.t.Errorf("the go command was asked for %q, want %q", got, want)
	}
	if err := os.RemoveAll(m.log); err != nil {
		m.t.Fatal(err)
	}
}

// holds checks that the cache folder holds these programs, whole, and no other files but the lock.
func (m *machine) holds(want ...string) {
	m.t.Helper()
	entries, err := os.ReadDir(m.cache)
	if err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if e.Name() != ".lock" {
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Errorf("the folder holds %q, want %q", got, want)
	}
	for _, name := range want {
		if content, err := os.ReadFile(filepath.Join(m.cache, name)); err != nil || string(content) != "half whole" {
			m.t.Errorf("%s is %q, error %v", name, content, err)
		}
	}
}

func (m *machine) hangAt(name string) {
	m.t.Helper()
	fifo := filepath.Join(m.root, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.t.Setenv("FAKE_FIFO", fifo)
	m.t.Setenv("FAKE_HANG", name)
}

// waitUntilItHangs returns once the go command reads what is never written.
func (m *machine) waitUntilItHangs() {
	m.t.Helper()
	writer, err := os.OpenFile(filepath.Join(m.root, "fifo"), os.O_WRONLY, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = writer.Close() })
}

// install puts programs into a folder, which it returns.
func (m *machine) install(dir string, names ...string) string {
	m.t.Helper()
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(m.root, dir)
	}
	for _, name := range names {
		path, err := filepath.Rel(m.root, filepath.Join(dir, name))
		if err != nil {
			m.t.Fatal(err)
		}
		m.write(path, "#!/bin/sh\n")
	}
	return dir
}

// write writes an executable file.
func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

func names() []string {
	all := make([]string, len(programs))
	for i, p := range programs {
		all[i] = p.name
	}
	return all
}
