// Package stage is what tests of whole programs play on: the program as a process of its own, which can be killed, and
// clusters that it reaches with the rights of its manifests and no others.
package stage

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// asProgram makes the test binary the program.
const asProgram = "FLEET_RUNTIME_TEST_AS_PROGRAM"

// Run is called by TestMain, and returns the code to exit with. It runs the tests of the package or, in a process of
// [Start], the program.
func Run(m *testing.M, pool *mctest.Pool, program func()) int {
	if os.Getenv(asProgram) == "" {
		ctrl.SetLogger(logr.Discard())
		return pool.Run(m)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the tests do, however that comes
		os.Exit(1)
	}()
	program()
	return 0
}

// RunInPod is [Run] for a program that runs in a pod of a namespace: it keeps what it has to remember there.
func RunInPod(m *testing.M, pool *mctest.Pool, namespace string, program func()) int {
	if err := os.Setenv("POD_NAMESPACE", namespace); err != nil {
		panic(err) // the name of the variable is one
	}
	return Run(m, pool, program)
}

// Program is a run of the program.
type Program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	log   log
	ended bool
}

// Start starts the program, which is stopped at the end of the test. If the test fails, its log shows what the program
// has written.
func Start(t *testing.T, args ...string) *Program {
	t.Helper()
	return start(t, os.Args[0], args)
}

// StartOther is Start for the program of another package, whose TestMain calls [Run] too. It is built in the folder of that.
func StartOther(t *testing.T, folder string, args ...string) *Program {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-ldflags=-w", "-o", binary, ".") //nolint:gosec // of tests
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		build.Args = slices.Insert(build.Args, 3, "-race") // so that what is compiled for tests is not compiled once more
	}
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program of %s: %v\n%s", folder, err, out)
	}
	return start(t, binary, args)
}

func start(t *testing.T, binary string, args []string) *Program {
	t.Helper()
	p := &Program{t: t, cmd: exec.Command(binary, args...)} //nolint:noctx,gosec // t.Context ends before clean-up, which stops it
	p.cmd.Env = append(os.Environ(), asProgram+"=yes")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	stdin, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("The program with the arguments %q has written:\n%s", args, p.log.String())
		}
	})
	return p
}

// Stop asks the program to end (SIGTERM) and waits for that. It must end without an error. Stopping one that has ended
// does nothing.
func (p *Program) Stop() {
	p.t.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.t.Errorf("the program ended with an error: %v", err)
	}
}

// Kill kills the program (SIGKILL) and returns once it is gone.
func (p *Program) Kill() {
	p.t.Helper()
	if err := p.end(syscall.SIGKILL); err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.t.Error(err)
	}
}

func (p *Program) end(s syscall.Signal) error {
	if p.ended {
		return nil
	}
	p.ended = true
	signalled := p.cmd.Process.Signal(s)
	err := p.cmd.Wait()
	_ = p.stdin.Close() // closed by Wait
	return errors.Join(err, signalled)
}

// Freeze suspends the program (SIGSTOP).
func (p *Program) Freeze() { p.Signal(syscall.SIGSTOP) }

// Thaw resumes it (SIGCONT).
func (p *Program) Thaw() { p.Signal(syscall.SIGCONT) }

// Signal sends a signal to the program.
func (p *Program) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Lines returns the lines that the program has written which contain all of these texts.
func (p *Program) Lines(texts ...string) []string {
	var found []string
	for line := range strings.Lines(p.log.String()) {
		if containsAll(line, texts) {
			found = append(found, line)
		}
	}
	return found
}

// Writes waits until the program has written a line with all of these texts.
func (p *Program) Writes(texts ...string) {
	p.t.Helper()
	Eventually(p.t, writing(texts), func() bool { return len(p.Lines(texts...)) > 0 })
}

// WritesSoon is Writes for what the program is to write within 5 seconds, see [Soon].
func (p *Program) WritesSoon(texts ...string) {
	p.t.Helper()
	Soon(p.t, writing(texts), func() bool { return len(p.Lines(texts...)) > 0 })
}

func writing(texts []string) string {
	return "the program writes a line with " + strings.Join(texts, " and ")
}

func containsAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// log is what a program has written.
type log struct {
	mu      sync.Mutex // guards content
	content bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}
