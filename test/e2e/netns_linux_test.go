package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// wire is a network namespace that is connected by one virtual cable, on which packets can be lost.
type wire struct {
	netns              string
	host, member       end
	hostCard, peerCard string
}

// end is one side of the cable.
type end struct{ device, addr string }

// newWire sets the cable up, or skips the test where that is not possible.
func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the program ip (iproute2) is missing")
	}
	removeWires()
	id := os.Getpid() % 100000
	w := &wire{
		netns:  fmt.Sprintf("wire%d", id),
		host:   end{fmt.Sprintf("wh%d", id), "10.213.77.1"},
		member: end{fmt.Sprintf("wm%d", id), "10.213.77.2"},
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", w.netns).CombinedOutput(); err != nil {
		t.Skipf("network namespaces are not permitted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command("ip", "netns", "delete", w.netns).CombinedOutput() //nolint:noctx // it must be done
		if err != nil {
			t.Errorf("deleting a network namespace: %v: %s", err, out)
		}
	})
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "add", w.host.device, "type", "veth",
		"peer", "name", w.member.device, "netns", w.netns).CombinedOutput(); err != nil {
		t.Skipf("virtual network cards are not permitted here: %v: %s", err, out)
	}
	t.Cleanup(func() { // it may outlive the namespace for a while, since connections hold that
		_ = exec.Command("ip", "link", "delete", w.host.device).Run() //nolint:noctx // it must be done
	})
	ip(t, "address", "add", w.host.addr+"/30", "dev", w.host.device)
	ip(t, "link", "set", w.host.device, "up")
	ip(t, "-n", w.netns, "address", "add", w.member.addr+"/30", "dev", w.member.device)
	ip(t, "-n", w.netns, "link", "set", w.member.device, "up")
	w.hostCard = card(ip(t, "-o", "link", "show", w.host.device))
	w.peerCard = card(ip(t, "-o", "-n", w.netns, "link", "show", w.member.device))
	return w
}

// removeWires takes away what runs have left that were killed: packets to the member would go there.
func removeWires() {
	left, _ := filepath.Glob("/run/netns/wire*")
	for _, path := range left {
		id := strings.TrimPrefix(filepath.Base(path), "wire")
		if _, err := os.Stat("/proc/" + id); errors.Is(err, fs.ErrNotExist) {
			_ = exec.Command("ip", "netns", "delete", "wire"+id).Run() //nolint:noctx // as above
			_ = exec.Command("ip", "link", "delete", "wh"+id).Run()    //nolint:noctx // as above
		}
	}
}

// ip runs the program of this name.
func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// card finds the address of a network card in what ip says.
func card(show string) string {
	_, after, _ := strings.Cut(show, "link/ether ")
	addr, _, _ := strings.Cut(after, " ")
	return addr
}

// nowhere is the address of a network card that nobody has.
const nowhere = "02:00:00:00:00:01"

// lose has the packets towards the member, those back from it, or both, lost on the cable: they are sent to a card that
// nobody has. With both false they arrive.
func (w *wire) lose(t *testing.T, towards, back bool) {
	t.Helper()
	to := func(lost bool, card string) string {
		if lost {
			return nowhere
		}
		return card
	}
	ip(t, "neighbour", "replace", w.member.addr, "lladdr", to(towards, w.peerCard), "nud", "permanent", "dev", w.host.device)
	ip(t, "-n", w.netns, "neighbour", "replace", w.host.addr, "lladdr", to(back, w.hostCard), "nud", "permanent", "dev", w.member.device)
}

// listen listens in the namespace, at the member's end of the cable. The connections stay in it.
func (w *wire) listen(t *testing.T) net.Listener {
	t.Helper()
	type result struct {
		net.Listener
		error
	}
	results := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, since no other may run on it
		listener, err := func() (net.Listener, error) {
			file, err := os.Open("/run/netns/" + w.netns)
			if err != nil {
				return nil, err
			}
			defer func() { _ = file.Close() }()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			var config net.ListenConfig
			return config.Listen(t.Context(), "tcp", w.member.addr+":0")
		}()
		results <- result{listener, err}
	}()
	r := <-results
	if r.error != nil {
		t.Skipf("entering a network namespace is not permitted here: %v", r.error)
	}
	return r.Listener
}

// TestPacketsAreLost on the way to a member, on the way back, and both ways: the member is Unreachable, comes back by
// itself, and what changed meanwhile is reconciled.
func TestPacketsAreLost(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ towards, back bool }{
		"BothWays":   {true, true},
		"TowardsIt":  {true, false},
		"BackFromIt": {false, true},
	}
	w := newWire(t)
	for name, lost := range cases {
		t.Run(name, func(t *testing.T) {
			f := pool.Start(t, mctest.Options{Clusters: 1})
			ns := inAll(t, f)
			cp := f.Members[0]
			w.lose(t, false, false)
			between := stage.NewNetworkOn(t, w.listen(t), stage.AddressOf(t, cp))
			m, seen := newWatchedManager(t, f.Local)
			m.set(fleet.Member{Name: "m", Config: between.Through(cp.Config())})
			m.start()
			m.is("m", fleet.Ready)
			writes := startLoad(t, cp, ns, 100)
			writes.reaches(t, 100)
			w.lose(t, lost.towards, lost.back)
			m.becomes(fleet.Unreachable, fleet.ReasonTimeout)
			writes.reaches(t, 100)
			w.lose(t, false, false)
			m.becomes(fleet.Ready)
			writes.reaches(t, 10)
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
		})
	}
}
