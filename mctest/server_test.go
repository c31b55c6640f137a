package mctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func TestServerHasItsPortsUntilItIsClosed(t *testing.T) {
	starter, err := newStarter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv, err := starter.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block := blockOf(t, srv.ports.etcd)
	for what, do := range map[string]func() error{
		"API server": srv.apiServer.Stop, "etcd": srv.etcd.Stop,
	} {
		if err := do(); err != nil {
			t.Errorf("stopping the %s: %v", what, err)
		}
	}
	isReserved(t, block)
	if err := errors.Join(srv.etcd.Restart(), srv.apiServer.Restart()); err != nil {
		t.Error(err)
	}
	isReserved(t, block)
	if err := srv.close(); err != nil {
		t.Error(err)
	}
	isFree(t, block)
}

func TestStartThatFailsIsTriedOnceMore(t *testing.T) {
	t.Run("and the other attempt may succeed", func(t *testing.T) {
		attempts := failingEtcd(t, `[ "$(wc -l <"$attempts")" -gt 1 ]`)
		fleet, err := New(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(attempts()); got != 2 {
			t.Errorf("%d attempts, want 2", got)
		}
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
		isEmpty(t, os.TempDir())
	})
	t.Run("and the error shows both attempts", func(t *testing.T) {
		attempts := failingEtcd(t, "false")
		fleet, err := New(t.Context(), Options{})
		if err == nil {
			_ = fleet.Close()
			t.Fatal("no error")
		}
		tried := attempts()
		if len(tried) != 2 {
			t.Errorf("%d attempts, want 2", len(tried))
		}
		for _, a := range tried {
			if want := "no luck in " + a.folder; !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
			isFree(t, blockOf(t, a.port))
		}
		isEmpty(t, os.TempDir())
	})
	t.Run("unless it is interrupted", func(t *testing.T) {
		attempts := failingEtcd(t, "exec sleep 600")
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := New(ctx, Options{})
			failed <- err
		}()
		err := wait.PollUntilContextTimeout(ctx, lookEvery, time.Minute, true, func(context.Context) (bool, error) {
			return len(attempts()) > 0, nil
		})
		if err != nil {
			t.Error("nothing was started:", err)
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that of the context", err)
		}
		if got := len(attempts()); got != 1 {
			t.Errorf("%d attempts, want 1", got)
		}
		isEmpty(t, os.TempDir())
	})
}

// attempt is one of starting a server.
type attempt struct{ folder, port string }

// failingEtcd has control planes started, in a TMPDIR of the test, with an etcd that fails unless the shell finds the
// condition true. attempts lists the attempts up to now; the condition can count the lines of the file $attempts.
func failingEtcd(t *testing.T, condition string) (attempts func() []attempt) {
	t.Helper()
	installed, err := findPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	assets, file := t.TempDir(), filepath.Join(t.TempDir(), "attempts")
	script := fmt.Sprintf(`#!/bin/sh
attempts=%s
for flag; do
	case $flag in
	--help) exec %[2]s --help ;;
	--data-dir=*) folder=${flag#*=} ;;
	--listen-client-urls=*) port=${flag##*:} ;;
	esac
done
# envtest tries several times for one attempt
grep -qs "^$folder " "$attempts" || echo "$folder $port" >>"$attempts"
%s && exec %[2]s "$@"
echo "no luck in $folder" >&2
exit 1
`, shellQuote(file), shellQuote(installed.etcd), condition)
	if err := errors.Join(
		os.WriteFile(filepath.Join(assets, "etcd"), []byte(script), 0o700),
		os.Symlink(installed.apiServer, filepath.Join(assets, "kube-apiserver")),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("TMPDIR", t.TempDir())
	return func() (found []attempt) {
		content, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		for line := range strings.Lines(string(content)) {
			folder, port, _ := strings.Cut(strings.TrimSpace(line), " ")
			found = append(found, attempt{folder, port})
		}
		return found
	}
}

// blockOf returns the first port of the block in which etcd has the given one.
func blockOf(t *testing.T, etcd string) (first int) {
	t.Helper()
	port, err := strconv.Atoi(etcd)
	if err != nil {
		t.Fatal(err)
	}
	return port - 1
}

func isEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("these files remain: %v (%v)", left, err)
	}
}
