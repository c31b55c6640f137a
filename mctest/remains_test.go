package mctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestNothingSurvivesCleanup(t *testing.T) {
	tmp := ownTempDir(t)
	t.Run("test", func(t *testing.T) {
		fleet := mctest.Start(t, mctest.Options{Clusters: 2})
		fleet.AddMember(t)
		fleet.Local.Freeze(t)
		fleet.Members[0].Stop(t)
		fleet.Members[1].Restart(t)
		if err := fleet.Members[2].Etcd.Freeze(); err != nil {
			t.Error(err)
		}
		if got := len(processes(t, tmp)); got < 7 {
			t.Errorf("%d processes run, of 4 etcds and 3 API servers: this test would notice none that survives", got)
		}
	})
	nothingRemains(t, tmp)
}

func TestNothingSurvivesAPool(t *testing.T) {
	tmp := ownTempDir(t)
	var own mctest.Pool
	code := own.Run(runFunc(func() int {
		t.Run("test", func(t *testing.T) { own.Start(t, mctest.Options{Clusters: 1}) })
		return 42
	}))
	if code != 42 {
		t.Errorf("Run returned %d, and the tests 42", code)
	}
	nothingRemains(t, tmp)
}

func TestNothingSurvivesAKilledTestBinary(t *testing.T) {
	tmp := ownTempDir(t)
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"=yes")
	var output bytes.Buffer
	victim.Stderr = &output
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error { return exists(filepath.Join(tmp, "started")) })
	if len(processes(t, tmp)) < 2 {
		t.Error("it has started nothing")
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	if err := os.Remove(filepath.Join(tmp, "started")); err != nil {
		t.Fatalf("%v\n%s", err, output.Bytes())
	}
	eventually(t, func(context.Context) error { return remains(t, tmp) })
}

// victimEnv makes this test binary one that starts a control plane and waits to be killed.
const victimEnv = "MCTEST_VICTIM"

func beVictim() {
	fleet, err := mctest.New(context.Background(), mctest.Options{}) //nolint:forbidigo // there is no test
	if err == nil {
		err = fleet.Local.APIServer.Freeze() // frozen processes must not survive either
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(os.TempDir(), "started"), nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// ownTempDir is the folder in which everything lands that is started until the end of the test.
func ownTempDir(t *testing.T) string {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	return tmp
}

func nothingRemains(t *testing.T, tmp string) {
	t.Helper()
	if err := remains(t, tmp); err != nil {
		t.Error(err)
	}
}

// remains returns an error if there are files in tmp, or processes that use some.
func remains(t *testing.T, tmp string) error {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("files remain: %s", files)
	}
	if running := processes(t, tmp); len(running) > 0 {
		err = errors.Join(err, fmt.Errorf("processes remain: %s", running))
	}
	return err
}

// processes lists the command lines that name a file in tmp.
func processes(t *testing.T, tmp string) []string {
	t.Helper()
	var found []string
	for _, line := range commandLines(t) {
		if bytes.Contains(line, []byte(tmp)) {
			found = append(found, string(line))
		}
	}
	return found
}

// commandLines lists those of all processes.
func commandLines(t *testing.T) [][]byte {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 { // another system than Linux
		out, err := exec.CommandContext(t.Context(), "ps", "-A", "-o", "args=").Output()
		if err != nil {
			t.Fatal("listing processes:", err)
		}
		return bytes.Split(out, []byte("\n"))
	}
	var lines [][]byte
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil { // else the process has ended meanwhile
			lines = append(lines, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
	return lines
}

func exists(pattern string) error {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no file %s", pattern)
	}
	return err
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Errorf("%v: %v", err, last)
	}
}

type runFunc func() int

func (f runFunc) Run() int { return f() }
