package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

const (
	// chaosEnv is how long the faults go on, and chaosSeedEnv which ones, as a run before has logged it.
	chaosEnv, chaosSeedEnv = "CHAOS", "CHAOS_SEED"
	chaosDefault           = 20 * time.Second

	// chaosMembers are under names of their own, each through a proxy of its own. chaosUntouched of them, on an API
	// server that has no faults, are always healthy.
	chaosMembers, chaosUntouched = 10, 2
)

// chaos is the state of what the faults are done to. Nothing of it is shared with other goroutines.
type chaos struct {
	t       *testing.T
	m       *manager
	seen    *ledger
	rng     *rand.Rand
	ns      string
	planes  []*plane
	members []*chaosMember
	beats   int
}

// plane is an API server and what is wrong with it.
type plane struct {
	*mctest.ControlPlane
	users           []*rest.Config // whose credentials it accepts
	stopped, frozen bool
}

// chaosMember is a member and what is wrong with it.
type chaosMember struct {
	name    fleet.ClusterName
	plane   *plane
	between *stage.Network
	secret  *corev1.Secret // nil while it is no member
}

// TestChaos has random faults happen to members, several at once, and checks all the time that members without a fault
// are reconciled and those that were removed are not. At last all is repaired, and nothing may have been lost.
func TestChaos(t *testing.T) {
	length, seed := chaosDefault, uint64(time.Now().UnixNano())
	var err error
	if value := os.Getenv(chaosEnv); value != "" {
		if length, err = time.ParseDuration(value); err != nil {
			t.Fatalf("%s: %v", chaosEnv, err)
		}
	}
	if value := os.Getenv(chaosSeedEnv); value != "" {
		if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			t.Fatalf("%s: %v", chaosSeedEnv, err)
		}
	}
	t.Logf("the seed is %s=%d", chaosSeedEnv, seed)

	f := pool.Start(t, mctest.Options{Clusters: 3})
	c := &chaos{t: t, rng: rand.New(rand.NewPCG(seed, 0)), ns: inAll(t, f)}
	for _, cp := range f.Members {
		users := []*rest.Config{cp.Config(), cp.AddUser(t, "chaos-1", configMapReader), cp.AddUser(t, "chaos-2", configMapReader)}
		c.planes = append(c.planes, &plane{ControlPlane: cp, users: users})
	}
	c.m, c.seen = newSecretsManager(t, f.Local)
	for i := range chaosMembers {
		p := c.planes[i%len(c.planes)]
		if i >= chaosMembers-chaosUntouched {
			p = c.safePlane()
		}
		c.members = append(c.members, &chaosMember{
			name: fleet.ClusterName(fmt.Sprintf("m%d", i)), plane: p, between: newProxy(t, p.ControlPlane),
		})
	}
	c.m.start()
	c.cycle() // what is made once is made now
	before := goroutinesOfManager()

	for _, member := range c.members {
		c.join(member)
	}
	c.allReady()
	writes := make([]*load, len(c.planes))
	for i, p := range c.planes {
		writes[i] = startLoad(t, p.ControlPlane, c.ns, 50)
	}
	faults := 0
	for end := time.Now().Add(length); time.Now().Before(end); faults++ {
		t.Logf("%s", c.fault())
		c.beat()
		c.seen.mustHeed(t)
		c.m.mustRun()
		c.pause()
	}
	c.repair()
	c.allReady()
	for i, l := range writes {
		l.reaches(t, 10)
		l.end(t)
		t.Logf("%d writes to %s", l.written.Load(), c.planes[i].Name)
	}
	for _, member := range c.members {
		c.seen.mustAgree(t, member.name, member.plane.ControlPlane, c.ns)
	}
	for _, member := range c.members {
		c.leave(member)
	}
	c.seen.mustHeed(t)
	c.m.mustRun()
	eventually(t, "as many goroutines run as before", func() bool { return goroutinesOfManager() <= before })
	t.Logf("%d faults", faults)
}

// safePlane is the API server to which nothing happens.
func (c *chaos) safePlane() *plane { return c.planes[len(c.planes)-1] }

// untouched are the members to which nothing happens.
func (c *chaos) untouched() []*chaosMember { return c.members[chaosMembers-chaosUntouched:] }

// cycle joins and removes one member.
func (c *chaos) cycle() {
	first := c.members[chaosMembers-1]
	c.join(first)
	c.beatOf(first)
	c.leave(first)
}

// join makes a member of a cluster. From then on it may be reconciled.
func (c *chaos) join(member *chaosMember) {
	c.seen.allow(member.name)
	member.secret = c.m.join(string(member.name), member.between.Through(member.plane.Config()))
}

// leave removes a member, whatever is wrong with it, and forbids its reconciles once it is gone.
func (c *chaos) leave(member *chaosMember) {
	c.m.leave(member.secret)
	member.secret = nil
	c.m.is(member.name, "")
	c.seen.bar(member.name)
}

// fault does something to an API server or a member, and says what.
func (c *chaos) fault() string {
	touched := c.members[:chaosMembers-chaosUntouched]
	member := touched[c.rng.IntN(len(touched))]
	p := c.planes[c.rng.IntN(len(c.planes)-1)]
	switch n := c.rng.IntN(100); {
	case n < 8:
		return p.Name + " " + c.toggleStopped(p)
	case n < 20:
		return p.Name + " " + c.toggleFrozen(p)
	case n < 40:
		return string(member.name) + " " + c.toggleMember(member)
	case n < 60:
		return string(member.name) + " " + c.rewrite(member)
	default:
		return string(member.name) + " " + c.network(member)
	}
}

func (c *chaos) toggleStopped(p *plane) string {
	p.frozen = false // a process that is killed or started is not frozen
	if p.stopped = !p.stopped; p.stopped {
		p.Stop(c.t)
		return "is killed"
	}
	p.Restart(c.t)
	return "is started again"
}

func (c *chaos) toggleFrozen(p *plane) string {
	if p.stopped {
		return c.toggleStopped(p)
	}
	if p.frozen = !p.frozen; p.frozen {
		p.Freeze(c.t)
		return "is frozen"
	}
	p.Thaw(c.t)
	return "is thawed"
}

func (c *chaos) toggleMember(member *chaosMember) string {
	if member.secret == nil {
		c.join(member)
		return "joins"
	}
	c.leave(member)
	return "has left"
}

// rewrite writes the kubeconfig of a member: with the credentials of one user or another, or with what does not work.
func (c *chaos) rewrite(member *chaosMember) string {
	if member.secret == nil {
		return c.toggleMember(member)
	}
	user := c.rng.IntN(len(member.plane.users))
	cfg := member.between.Through(member.plane.users[user])
	said := fmt.Sprintf("has the right kubeconfig, of user %d", user)
	switch c.rng.IntN(4) {
	case 0:
		cfg = rest.AnonymousClientConfig(cfg)
		cfg.BearerToken = "of-nobody"
		said = "has a wrong token"
	case 1:
		cfg.CAData = otherCA(c.t)
		said = "has a wrong CA"
	}
	c.m.rejoin(member.secret, cfg)
	return said
}

func (c *chaos) network(member *chaosMember) string {
	switch c.rng.IntN(7) {
	case 0:
		member.between.Hold(true, true)
		return "is cut off"
	case 1:
		member.between.Hold(true, false)
		return "is cut off one way"
	case 2:
		member.between.Hold(false, true)
		return "is cut off the other way"
	case 3:
		member.between.Refuse()
		return "refuses connections"
	case 4:
		member.between.Strand()
		return "loses its connections silently"
	default:
		c.connect(member)
		return "is connected"
	}
}

func (c *chaos) connect(member *chaosMember) {
	member.between.Hold(false, false)
	if err := member.between.Reopen(); err != nil {
		c.t.Fatal(err)
	}
}

// beat changes something in the members to which nothing happens, and waits until that is reconciled.
func (c *chaos) beat() {
	for _, member := range c.untouched() {
		c.beatOf(member)
	}
}

func (c *chaos) beatOf(member *chaosMember) {
	c.beats++
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "a"}}
	touch(c.t, member.plane.ControlPlane, cm, c.beats) // it has the version now
	eventually(c.t, fmt.Sprintf("a change in %s, to which nothing happens, is reconciled", member.name), func() bool {
		return c.seen.version(member.name, cm) == cm.ResourceVersion
	})
}

// pause lets the faults of now have their effect.
func (c *chaos) pause() {
	<-time.After(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
}

// repair undoes every fault.
func (c *chaos) repair() {
	for _, p := range c.planes {
		if p.stopped {
			c.toggleStopped(p)
		}
		if p.frozen {
			c.toggleFrozen(p)
		}
	}
	for _, member := range c.members {
		c.connect(member)
		if member.secret == nil {
			c.join(member)
		} else {
			c.m.rejoin(member.secret, member.between.Through(member.plane.Config()))
		}
	}
}

func (c *chaos) allReady() {
	begin := time.Now()
	for _, member := range c.members {
		eventuallyWithin(c.t, 2*time.Minute, string(member.name)+" is ready and has nothing to complain about", func() bool {
			status := c.m.status(member.name)
			return status.State == fleet.Ready && status.Reason == ""
		})
	}
	c.t.Logf("all members were ready after %s", time.Since(begin).Round(10*time.Millisecond))
}
