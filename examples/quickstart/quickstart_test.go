package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// asProgram makes the test binary the program itself.
const asProgram = "QUICKSTART_AS_PROGRAM"

var pool mctest.Pool

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(pool.Run(m))
}

// program is a run of the quickstart, with its output in a pipe.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *bufio.Scanner
	lines  []string // of the output, as far as read
	stderr bytes.Buffer
	tmp    string // its folder for temporary files
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, tmp: t.TempDir(), cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=yes", "TMPDIR="+p.tmp)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = 10 * time.Second // should something else hold its stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.output = bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// patience is how long the program may take until it shows something, or ends. No test passes because of it.
const patience = 5 * time.Minute

// readTo reads the output up to a line with the text.
func (p *program) readTo(text string) {
	p.t.Helper()
	p.readUntil(strconv.Quote(text), func(line string) bool { return strings.Contains(line, text) })
}

// readUntil reads the output up to a line that is the last.
func (p *program) readUntil(what string, isLast func(line string) bool) {
	p.t.Helper()
	found, inTime := p.read(isLast)
	if found {
		return
	}
	_ = p.cmd.Wait()
	how := "the output ended"
	if !inTime {
		how = fmt.Sprintf("the program was killed after %s", patience)
	}
	p.t.Fatalf("%s without %s:\n%s\n%s", how, what, strings.Join(p.lines, "\n"), &p.stderr)
}

// read reads the output up to a line that is the last, or all. It kills the program if that takes too long.
func (p *program) read(isLast func(line string) bool) (found, inTime bool) {
	deadline := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	for !found && p.output.Scan() {
		p.lines = append(p.lines, p.output.Text())
		found = isLast(p.output.Text())
	}
	return found, deadline.Stop()
}

// readToEach reads the output until there was a line with each of the texts, in whatever order.
func (p *program) readToEach(texts ...string) {
	p.t.Helper()
	p.readUntil(fmt.Sprintf("each of %q", texts), func(line string) bool {
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(line, text) })
		return len(texts) == 0
	})
}

// end reads the rest of the output and returns the exit code.
func (p *program) end() int {
	p.t.Helper()
	_, inTime := p.read(func(string) bool { return false })
	err := p.cmd.Wait()
	if !inTime {
		p.t.Errorf("the program did not end, and was killed after %s", patience)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	p.t.Logf("exit code %d\n%s\n%s", p.cmd.ProcessState.ExitCode(), strings.Join(p.lines, "\n"), &p.stderr)
	return p.cmd.ProcessState.ExitCode()
}

// processes are those of the control planes that run.
func (p *program) processes() (pids []int) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.tmp, "mctest-*", "*.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// leavesNothing checks that neither files nor these processes are there any more.
func (p *program) leavesNothing(pids []int) {
	p.t.Helper()
	left, err := os.ReadDir(p.tmp)
	if err != nil || len(left) > 0 {
		p.t.Errorf("these files remain: %v (%v)", left, err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			p.t.Errorf("process %d still runs (%v)", pid, err)
		}
	}
}

func TestTheDemoShowsWhatItPromises(t *testing.T) {
	t.Parallel()
	p := start(t)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p.leavesNothing(nil)
	output := strings.Join(p.lines, "\n")
	if i := strings.IndexFunc(output, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("the output has control characters: %q", output[i:])
	}
	for name, want := range map[string][]fleet.State{
		"member-1": {fleet.Ready, "Gone"},
		"member-2": {fleet.Ready, fleet.Unreachable, fleet.Ready},
		"member-3": {fleet.Ready},
	} {
		if diff := cmp.Diff(want, p.states(name)); diff != "" {
			t.Errorf("states of %s (-want, +got):\n%s", name, diff)
		}
	}
	p.showed(
		`- Two members were discovered`, `- One controller reconciled`, `- A third joined`, `- member-2 was killed`,
		`- member-2 came back`, `- member-1 left`, `- After that, member-1 was left alone`,
		`Reconciles: member-1 [1-9]\d*, member-2 [1-9]\d*, member-3 [1-9]\d*\.`, `Ended after (\d+m)?\d+s`,
	)
}

// TestProcessesShareTheMembers: one is killed and one ends, and the third works on everything then.
func TestProcessesShareTheMembers(t *testing.T) {
	t.Parallel()
	p := start(t, "--replicas=3")
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p.leavesNothing(nil)
	owner := regexp.MustCompile(`^\d\d:\d\d:\d\d (member-\d) Ready in (replica-\d)`)
	owners, last := map[string]bool{}, map[string]string{}
	for _, line := range p.lines {
		if match := owner.FindStringSubmatch(line); match != nil {
			owners[match[2]], last[match[1]] = true, match[2]
		}
	}
	if len(owners) < 2 {
		t.Errorf("members were with %v alone", owners)
	}
	want := map[string]string{"member-1": "replica-2", "member-2": "replica-2", "member-3": "replica-2", "member-4": "replica-2"}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("owners in the end (-want, +got):\n%s", diff)
	}
	p.showed(`- 3 processes shared 4 members\.`, `- replica-3 was killed\. .* That took \d`, `- replica-1 handed over, and ended\. That took \d`)
}

// showed tells what the summary at the end lacks.
func (p *program) showed(wanted ...string) {
	p.t.Helper()
	summary := p.lines[max(0, slices.Index(p.lines, "What was shown:")):]
	for _, want := range wanted {
		if !slices.ContainsFunc(summary, regexp.MustCompile("^"+want).MatchString) {
			p.t.Errorf("the summary lacks %q:\n%s", want, strings.Join(summary, "\n"))
		}
	}
}

// states lists the lasting states of a member that lines have shown, without repetitions.
func (p *program) states(name string) []fleet.State {
	state := regexp.MustCompile(`^\d\d:\d\d:\d\d ` + name + ` (\w+)`)
	fleeting := []fleet.State{fleet.Pending, fleet.Connecting, fleet.Draining}
	var states []fleet.State
	for _, line := range p.lines {
		if match := state.FindStringSubmatch(line); match != nil && !slices.Contains(fleeting, fleet.State(match[1])) {
			states = append(states, fleet.State(match[1]))
		}
	}
	return slices.Compact(states)
}

func TestCtrlCLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		at   string // a line of the output
		code int
	}{
		"while clusters start":   {nil, "member-1 is ready", 130},
		"while the script runs":  {nil, "member-3 joins", 130},
		"when all has been seen": {[]string{"--stay"}, "it goes on until Ctrl-C", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, test.args...)
			p.readTo(test.at)
			pids := p.processes()
			if len(pids) == 0 {
				t.Error("no control plane was found")
			}
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.end(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			p.leavesNothing(pids)
		})
	}
}

func TestRealClustersAreOnlyRead(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	for i := range 20 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("cm-%d", i)}}
		if err := f.Members[0].Client().Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	file := kubeconfigFile(t, map[string]*rest.Config{
		"blue":  f.Local.RecordRights(t, mctest.Rights{File: "rbac/cluster.yaml"}).Config(),
		"green": f.Members[0].RecordRights(t, mctest.Rights{File: "rbac/cluster.yaml"}).Config(),
	})
	t.Run("until all is reconciled", func(t *testing.T) {
		p := start(t, "--kubeconfig", file, "--contexts", "blue,green")
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		p.leavesNothing(nil)
		// Each has a few ConfigMaps of its own.
		for _, want := range []string{`- Every ConfigMap of blue, green was reconciled\.`, `Reconciles: blue \d, green 2\d\.`} {
			if !slices.ContainsFunc(p.lines, regexp.MustCompile("^"+want+"$").MatchString) {
				t.Errorf("the output lacks a line %q", want)
			}
		}
	})
	t.Run("until Ctrl-C", func(t *testing.T) {
		list := &corev1.ConfigMapList{}
		if err := f.Local.Client().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		p := start(t, "--kubeconfig", file, "--contexts", "blue,green", "--stay")
		// What else is reconciled in blue must have been shown by then: a line names the last object alone.
		p.readToEach(fmt.Sprintf("blue Ready, objects %d,", len(list.Items)), "green Ready, objects 2")
		late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
		if err := f.Local.Client().Create(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		p.readTo("found default/late")
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
	})
}

func TestARealClusterThatForbidsReadingIsNamed(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{})
	p := start(t, "--contexts", "closed", "--kubeconfig", kubeconfigFile(t, map[string]*rest.Config{
		"closed": f.Local.AddUser(t, "nobody"),
	}))
	if code := p.end(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"closed", "configmaps is forbidden", "the log is in " + p.tmp} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the error lacks %q:\n%s", want, &p.stderr)
		}
	}
}

func TestAnUnknownContextIsAnErrorThatListsThoseThatExist(t *testing.T) {
	t.Parallel()
	p := start(t, "--contexts", "red,blue", "--kubeconfig", kubeconfigFile(t, map[string]*rest.Config{
		"blue": {Host: "https://127.0.0.1:1"}, "green": {Host: "https://127.0.0.1:1"},
	}))
	if code := p.end(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := `has no context "red"; it has: blue, green`; !strings.Contains(p.stderr.String(), want) {
		t.Errorf("the error lacks %q:\n%s", want, &p.stderr)
	}
	p.leavesNothing(nil)
}

// kubeconfigFile writes a kubeconfig with the contexts.
func kubeconfigFile(t *testing.T, contexts map[string]*rest.Config) (path string) {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	for name, config := range contexts {
		content, err := mctest.Kubeconfig(config)
		if err != nil {
			t.Fatal(err)
		}
		one, err := clientcmd.Load(content)
		if err != nil {
			t.Fatal(err)
		}
		used := one.Contexts[one.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = one.Clusters[used.Cluster], one.AuthInfos[used.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		t.Fatal(err)
	}
	return path
}
