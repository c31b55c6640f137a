package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// longEnv asks for the tests that must outlast client-go's HTTP/2 pings, which end a dead connection after 45 seconds.
const longEnv = "LONG_FAULTS"

// quickHealth finds out within seconds what takes half a minute by default.
func quickHealth(o *fleet.Options) {
	o.Health = fleet.HealthOptions{ProbeInterval: time.Second, RetryInterval: 200 * time.Millisecond, ProbeTimeout: time.Second}
}

// newWatchedManager makes a manager with quick probes and a ledger of its members' ConfigMaps.
func newWatchedManager(t *testing.T, local *mctest.ControlPlane) (*manager, *ledger) {
	t.Helper()
	m := newManagerWith(t, local, "", static{}, func(*mcmanager.Options) {}, quickHealth)
	seen := newLedger()
	m.control(seen)
	return m, seen
}

// set reports a member by itself, without a provider.
func (m *manager) set(member fleet.Member) {
	m.t.Helper()
	if err := m.members.Set(member); err != nil {
		m.t.Fatal(err)
	}
}

// becomes waits until the member "m" is in a state, for one of the reasons if there are any, and logs how long it took and
// what the status says.
func (m *manager) becomes(state fleet.State, reasons ...string) {
	m.t.Helper()
	begin := time.Now()
	m.is("m", state)
	status := m.status("m")
	m.t.Logf("%s after %s: %s %s", state, time.Since(begin).Round(10*time.Millisecond), status.Reason, status.Message)
	if len(reasons) > 0 {
		m.isBecause("m", state, reasons...)
	}
}

// TestAMemberIsKilledAgainAndAgainWhileItsObjectsChange: each time it comes back, nothing has been lost.
func TestAMemberIsKilledAgainAndAgainWhileItsObjectsChange(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.start()
	m.is("m", fleet.Ready)
	writes := startLoad(t, cp, ns, 100)
	for range 3 {
		writes.reaches(t, 100)
		cp.Stop(t)
		m.becomes(fleet.Unreachable, fleet.ReasonRefused)
		cp.Restart(t)
		m.becomes(fleet.Ready)
	}
	writes.reaches(t, 100)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	t.Logf("%d writes, %d reconciles", writes.written.Load(), seen.total("m"))
}

// TestAMemberIsFrozenWhileItsObjectsChange: for shorter, and where asked for, for longer than a dead connection is kept.
func TestAMemberIsFrozenWhileItsObjectsChange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		frozen time.Duration // beyond the time until it is noticed
		long   bool
	}{
		"Shortly":                         {frozen: time.Second},
		"LongerThanADeadConnectionIsKept": {frozen: time.Minute, long: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.long {
				skipUnlessLong(t)
			}
			f := pool.Start(t, mctest.Options{Clusters: 1})
			ns := inAll(t, f)
			cp := f.Members[0]
			m, seen := newWatchedManager(t, f.Local)
			m.set(fleet.Member{Name: "m", Config: cp.Config()})
			m.start()
			m.is("m", fleet.Ready)
			writes := startLoad(t, cp, ns, 100)
			writes.reaches(t, 100)
			cp.Freeze(t)
			m.becomes(fleet.Unreachable, fleet.ReasonTimeout)
			m.stays(tc.frozen, fleet.Unreachable)
			cp.Thaw(t)
			m.becomes(fleet.Ready)
			writes.reaches(t, 100)
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
		})
	}
}

func skipUnlessLong(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) == "" {
		t.Skipf("it takes minutes, and runs where %s is set", longEnv)
	}
}

// stays watches that the member "m" keeps its state for a while.
func (m *manager) stays(how time.Duration, state fleet.State) {
	m.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(how)
	for {
		select {
		case <-tick.C:
		case <-end:
			return
		}
		if status := m.status("m"); status.State != state {
			m.t.Fatalf("the member is %+v, want it to stay %s", status, state)
		}
	}
}

// TestTheStorageOfAMemberFails: its API server runs on and answers with errors, or late.
func TestTheStorageOfAMemberFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fail, repair func(etcd *mctest.Process) error
	}{
		"Killed": {fail: (*mctest.Process).Stop, repair: (*mctest.Process).Restart},
		"Frozen": {fail: (*mctest.Process).Freeze, repair: (*mctest.Process).Thaw},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := pool.Start(t, mctest.Options{Clusters: 1})
			ns := inAll(t, f)
			cp := f.Members[0]
			m, seen := newWatchedManager(t, f.Local)
			m.set(fleet.Member{Name: "m", Config: cp.Config()})
			m.start()
			m.is("m", fleet.Ready)
			writes := startLoad(t, cp, ns, 100)
			writes.reaches(t, 100)
			if err := tc.fail(cp.Etcd); err != nil {
				t.Fatal(err)
			}
			m.becomes(fleet.Unreachable, fleet.ReasonServerError, fleet.ReasonTimeout)
			if err := tc.repair(cp.Etcd); err != nil {
				t.Fatal(err)
			}
			m.becomes(fleet.Ready)
			writes.reaches(t, 100)
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
		})
	}
}

// TestTheNetworkToAMemberFails: the member runs on, and its objects change meanwhile.
func TestTheNetworkToAMemberFails(t *testing.T) {
	t.Parallel()
	hold := func(up, down bool) func(*stage.Network) error {
		return func(p *stage.Network) error {
			p.Hold(up, down)
			return nil
		}
	}
	refuse := func(p *stage.Network) error {
		p.Refuse()
		return nil
	}
	timeout := []string{fleet.ReasonTimeout}
	cases := map[string]struct {
		fail, repair func(*stage.Network) error
		reasons      []string
		// ask sends a request, since events that flow back are signs of life as long as nobody asks for anything.
		ask   bool
		lasts time.Duration // beyond the time until it is noticed
		long  bool
	}{
		"BothWays":       {fail: hold(true, true), repair: hold(false, false), reasons: timeout},
		"TowardsIt":      {fail: hold(true, false), repair: hold(false, false), reasons: timeout, ask: true},
		"BackFromIt":     {fail: hold(false, true), repair: hold(false, false), reasons: timeout},
		"Refused":        {fail: refuse, repair: (*stage.Network).Reopen, reasons: []string{fleet.ReasonRefused}},
		"ForAMinute":     {fail: hold(true, true), repair: hold(false, false), reasons: timeout, lasts: time.Minute, long: true},
		"BackForAMinute": {fail: hold(false, true), repair: hold(false, false), reasons: timeout, lasts: time.Minute, long: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.long {
				skipUnlessLong(t)
			}
			f := pool.Start(t, mctest.Options{Clusters: 1})
			ns := inAll(t, f)
			cp := f.Members[0]
			between := newProxy(t, cp)
			m, seen := newWatchedManager(t, f.Local)
			m.set(fleet.Member{Name: "m", Config: between.Through(cp.Config())})
			m.start()
			m.is("m", fleet.Ready)
			writes := startLoad(t, cp, ns, 100)
			writes.reaches(t, 100)
			if err := tc.fail(between); err != nil {
				t.Fatal(err)
			}
			if tc.ask && m.who() != "" {
				t.Error("a request was answered")
			}
			m.becomes(fleet.Unreachable, tc.reasons...)
			writes.reaches(t, 100)
			m.stays(tc.lasts, fleet.Unreachable)
			if err := tc.repair(between); err != nil {
				t.Fatal(err)
			}
			m.becomes(fleet.Ready)
			writes.reaches(t, 10)
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
		})
	}
}

// TestConnectionsThatDieSilently: nothing passes on those of now any more, while new ones work. The watch of an object
// must not go on waiting on a dead one. HTTP/2's own pings, which find out after 45 seconds, are switched off: so it is the fleet's
// probes that do.
func TestConnectionsThatDieSilently(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "0")
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	between := newProxy(t, cp)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: between.Through(cp.Config())})
	m.start()
	m.is("m", fleet.Ready)
	writes := startLoad(t, cp, ns, 100)
	writes.reaches(t, 100)
	between.Strand()
	writes.reaches(t, 100)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	m.is("m", fleet.Ready)
}

// TestAMemberMayBeRemovedAtAnyMoment: Remove returns, nothing of the member runs afterwards, and no goroutine is left.
func TestAMemberMayBeRemovedAtAnyMoment(t *testing.T) {
	cases := map[string]struct {
		rate  int
		begin func(between *stage.Network)
		until func(m *manager, between *stage.Network) bool
	}{
		"WhileItsFirstListIsOnTheWay": {
			rate: 50 << 10,
			until: func(m *manager, between *stage.Network) bool {
				return m.status("m").State == fleet.Ready && between.Passed() > 100<<10
			},
		},
		"WhileItIsConnecting": {
			begin: func(between *stage.Network) { between.Hold(false, true) },
			until: func(m *manager, _ *stage.Network) bool { return m.status("m").Attempts > 0 },
		},
		"WhileItsListHangs": {
			rate: 50 << 10,
			until: func(m *manager, between *stage.Network) bool {
				if m.status("m").State != fleet.Ready || between.Passed() < 50<<10 {
					return false
				}
				between.Hold(true, true)
				return true
			},
		},
	}
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp := f.Members[0]
	ns := inAll(t, f)
	bigConfigMaps(t, cp, ns, 300)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, seen := newWatchedManager(t, f.Local)
			m.start()
			m.set(fleet.Member{Name: "warm-up", Config: cp.Config()}) // what is made once is made now
			eventually(t, "a member like it is reconciled", func() bool { return len(seen.of("warm-up", ns)) > 300 })
			<-m.members.Remove("warm-up")
			between := newSlowProxy(t, cp, tc.rate)
			if tc.begin != nil {
				tc.begin(between)
			}
			before := goroutinesOfManager()
			m.set(fleet.Member{Name: "m", Config: between.Through(cp.Config())})
			eventually(t, "the moment has come", func() bool { return tc.until(m, between) })
			begin := time.Now()
			select {
			case <-m.members.Remove("m"):
			case <-time.After(30 * time.Second):
				t.Fatalf("it is not drained: %+v", m.status("m"))
			}
			t.Logf("removed within %s", time.Since(begin).Round(time.Millisecond))
			seen.bar("m")
			if status, ok := m.GetFleet().Status("m"); ok {
				t.Errorf("it is still a member: %+v", status)
			}
			eventually(t, "as many goroutines run as before", func() bool { return goroutinesOfManager() <= before })
			between.Hold(false, false)
			seen.mustHeed(t)
		})
	}
}

// proxyCode is in the stack of every goroutine of a proxy.
const proxyCode = "stage.(*Network)"

// goroutinesOfManager counts as goroutines does, without those of proxies.
func goroutinesOfManager() int {
	buf := make([]byte, 16<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "net/http") && !strings.Contains(stack, proxyCode) {
			n++
		}
	}
	return n
}

// bigConfigMaps creates ConfigMaps of 8 KB that cannot be compressed.
func bigConfigMaps(t *testing.T, cp *mctest.ControlPlane, namespace string, n int) {
	t.Helper()
	content := make([]byte, 8<<10)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error {
			return cp.Client().Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("big-%d", i)},
				BinaryData: map[string][]byte{"content": content},
			})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
