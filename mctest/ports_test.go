package mctest

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// reserveEnv has this test binary reserve the block of ports that it names, until its standard input ends.
const reserveEnv = "MCTEST_RESERVE"

func TestPortsAreThoseOfOneControlPlane(t *testing.T) {
	if block := os.Getenv(reserveEnv); block != "" {
		reserveUntilStdinEnds(t, block)
		return
	}
	t.Run("of all that this process reserves", func(t *testing.T) {
		taken := map[string]bool{}
		const blocks = 100
		for range blocks {
			p, err := reservePorts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { mustClosePorts(t, p) })
			_, first, err := net.SplitHostPort(p.reserved.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			taken[first], taken[p.etcd], taken[p.apiServer] = true, true, true
		}
		if want := blocks * blockSize; len(taken) != want {
			t.Errorf("%d blocks of %d ports have %d ports, want %d", blocks, blockSize, len(taken), want)
		}
	})
	t.Run("until they are closed", func(t *testing.T) {
		block := freeBlock(t)
		p, err := reserveBlock(t.Context(), block)
		if err != nil {
			t.Fatal(err)
		}
		isReserved(t, block)
		mustClosePorts(t, p)
		isFree(t, block)
	})
	t.Run("of another process, until it ends", func(t *testing.T) {
		for name, end := range map[string]func(stdin io.Closer, p *os.Process) error{
			"by itself":    func(stdin io.Closer, _ *os.Process) error { return stdin.Close() },
			"by a kill -9": func(_ io.Closer, p *os.Process) error { return p.Signal(syscall.SIGKILL) },
		} {
			t.Run(name, func(t *testing.T) {
				block := freeBlock(t)
				other := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+rootName(t)+"$")
				other.Env = append(os.Environ(), reserveEnv+"="+strconv.Itoa(block))
				stdin, err := other.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				stdout, err := other.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				output := bufio.NewScanner(stdout)
				for output.Scan() && !strings.Contains(output.Text(), reserveEnv) {
					t.Log(output.Text())
				}
				isReserved(t, block)
				if err := end(stdin, other.Process); err != nil {
					t.Error(err)
				}
				if err := other.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Error(err)
				}
				isFree(t, block)
			})
		}
	})
}

func TestPortsAtWhichSomethingListensAreNotReserved(t *testing.T) {
	for i := range blockSize {
		block := freeBlock(t)
		listener, err := listen(t.Context(), block+i)
		if err != nil {
			t.Fatal(err)
		}
		isReserved(t, block)
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		isFree(t, block) // what could not be reserved is not kept in part
	}
}

// reserveUntilStdinEnds is what another process does.
func reserveUntilStdinEnds(t *testing.T, block string) {
	t.Helper()
	first, err := strconv.Atoi(block)
	if err != nil {
		t.Fatal(err)
	}
	p, err := reserveBlock(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(reserveEnv) // now the test goes on
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
	mustClosePorts(t, p)
}

// freeBlock returns a block of ports at which nothing listens. It is below those of control planes, so that none of a
// test that runs meanwhile takes it.
func freeBlock(t *testing.T) (first int) {
	t.Helper()
	var last error
	for range 20 {
		first = minPort - blockSize*(1+rand.N(1000))
		p, err := reserveBlock(t.Context(), first)
		if err == nil {
			mustClosePorts(t, p)
			return first
		}
		last = err
	}
	t.Fatal(last)
	return 0
}

func isReserved(t *testing.T, block int) {
	t.Helper()
	p, err := reserveBlock(t.Context(), block)
	if err == nil {
		mustClosePorts(t, p)
		t.Error("the ports are reserved twice")
	} else if !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}

func isFree(t *testing.T, block int) {
	t.Helper()
	p, err := reserveBlock(t.Context(), block)
	if err != nil {
		t.Error("the ports are still reserved:", err)
		return
	}
	mustClosePorts(t, p)
}

func mustClosePorts(t *testing.T, p *ports) {
	t.Helper()
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

func rootName(t *testing.T) string {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	return root
}
