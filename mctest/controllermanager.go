package mctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const controllerManager = "kube-controller-manager"

// StartControllerManager runs Kubernetes' own controllers against the control plane until the test ends: those of the
// given names, such as "deployment-controller", "replicaset-controller", "job-controller" and
// "garbage-collector-controller"; kube-controller-manager --help lists them. It returns once the process runs, and its
// controllers begin a few seconds later, so wait for what they do. A control plane has one controller manager at a time.
//
// Controllers that write to what every new control plane has, such as its roles and namespaces, keep a [Pool] from using
// it again.
func (cp *ControlPlane) StartControllerManager(tb testing.TB, controllers ...string) *Process {
	tb.Helper()
	p, err := cp.newControllerManager(tb.Context(), controllers)
	must(tb, err)
	must(tb, p.Restart())
	tb.Cleanup(func() {
		if err := p.Stop(); err != nil {
			tb.Error("mctest:", err)
		}
	})
	return p
}

func (cp *ControlPlane) newControllerManager(ctx context.Context, controllers []string) (*Process, error) {
	program, err := findControllerManager()
	if err != nil {
		return nil, err
	}
	folder := cp.server.reaper.dir
	kubeconfig := filepath.Join(folder, controllerManager+".kubeconfig")
	if err := os.WriteFile(kubeconfig, cp.kubeconfig, 0o600); err != nil {
		return nil, err
	}
	p := &Process{what: "the controller manager of " + cp.Name, pidFile: filepath.Join(folder, controllerManager+".pid")}
	var cmd *exec.Cmd
	p.start = func() error {
		cmd = exec.CommandContext(context.WithoutCancel(ctx), program, //nolint:gosec // the user names it
			"--kubeconfig="+kubeconfig, "--controllers="+strings.Join(controllers, ","),
			"--leader-elect=false", "--secure-port=0", "--profiling=false")
		cmd.Stdout, cmd.Stderr = cp.server.log, cp.server.log
		if err := cmd.Start(); err != nil {
			return err
		}
		return os.WriteFile(p.pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600) // the reaper looks for it
	}
	p.wait = func() error {
		if err := cmd.Wait(); !errors.As(err, new(*exec.ExitError)) { // killed
			return err
		}
		return nil
	}
	return p, nil
}

// findControllerManager looks beside the API server, in the folders of [findPrograms].
func findControllerManager() (string, error) {
	dirs, err := programDirs()
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		if program := filepath.Join(dir, controllerManager); executable(program) {
			return program, nil
		}
	}
	return "", fmt.Errorf("there is no %s; %w (looked in %s)", controllerManager, errNoPrograms, strings.Join(dirs, ", "))
}
