package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

// claimOf returns the name under which an object's engine reports a member: that of the member, and after a space, which no
// name has, the object. So each object has its claim on the member, and none is told that another has the name.
func claimOf(name, kind string, obj client.ObjectKey) fleet.ClusterName {
	return fleet.ClusterName(fmt.Sprintf("%s %s %s", name, kind, obj))
}

// memberOf returns the name of the member of a claim.
func memberOf(claim fleet.ClusterName) fleet.ClusterName {
	name, _, _ := strings.Cut(string(claim), " ")
	return fleet.ClusterName(name)
}

// claims reports as one member what several objects describe: it is reported as long as one of them does. It implements
// [fleet.Members] for the engines, which know claims alone. When one object lets go, the member goes on as another describes
// it, and nothing is drained.
type claims struct {
	fleet.Members

	log     logr.Logger
	mu      sync.Mutex // guards what follows; methods of the members, which never wait, are called under it
	claimed map[fleet.ClusterName]claimed
	leaving map[fleet.ClusterName]fleet.ClusterName // by member, the last claim, which is about to end
}

// claimed is a member as objects describe it, by their claims.
type claimed map[fleet.ClusterName]fleet.Member

func newClaims(members fleet.Members, log logr.Logger) *claims {
	return &claims{Members: members, log: log, claimed: map[fleet.ClusterName]claimed{}, leaving: map[fleet.ClusterName]fleet.ClusterName{}}
}

var _ fleet.Members = (*claims)(nil)

// Set implements [fleet.Members].
func (c *claims) Set(m fleet.Member) error {
	claim := m.Name
	m.Name = memberOf(claim)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.claimed[m.Name]
	if of == nil {
		of = claimed{}
		c.claimed[m.Name] = of
	}
	of[claim] = m
	err := c.Members.Set(of.best())
	if err != nil { // nobody removes what was not taken
		delete(of, claim)
		if len(of) == 0 {
			delete(c.claimed, m.Name)
		}
		return err
	}
	delete(c.leaving, m.Name)
	return nil
}

// Leave implements [fleet.Members]. The last claim lets the member leave. One before ends at once, and the member goes on.
func (c *claims) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	claim := m.Name
	m.Name = memberOf(claim)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.claimed[m.Name]; len(of) > 1 || len(of) == 1 && !of.has(claim) {
		return c.removeLocked(claim), nil
	}
	left, err = c.Members.Leave(m)
	if err == nil {
		delete(c.claimed, m.Name)
		c.leaving[m.Name] = claim
	}
	return left, err
}

// Remove implements [fleet.Members]. Removing the last claim removes the member; before that, nothing is drained.
func (c *claims) Remove(claim fleet.ClusterName) (drained <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removeLocked(claim)
}

func (c *claims) removeLocked(claim fleet.ClusterName) (drained <-chan struct{}) {
	name := memberOf(claim)
	if c.leaving[name] == claim {
		delete(c.leaving, name)
		return c.Members.Remove(name)
	}
	of := c.claimed[name]
	if of == nil {
		return closed.Channel()
	}
	delete(of, claim)
	if len(of) == 0 {
		delete(c.claimed, name)
		return c.Members.Remove(name)
	}
	if err := c.Members.Set(of.best()); err != nil && !errors.Is(err, fleet.ErrStopped) {
		c.log.Error(err, "The member cannot be reported as another object describes it", "cluster", name)
	}
	return closed.Channel()
}

// SetProblem implements [fleet.Members].
func (c *claims) SetProblem(p fleet.Problem) {
	p.Member = memberOf(p.Member)
	c.Members.SetProblem(p)
}

func (of claimed) has(claim fleet.ClusterName) bool {
	_, ok := of[claim]
	return ok
}

// best returns the member as the first claim describes it, by name, which describes a way to reach it. All replicas come to
// the same.
func (of claimed) best() fleet.Member {
	names := slices.Sorted(maps.Keys(of))
	for _, claim := range names {
		if of[claim].Err == nil {
			return of[claim]
		}
	}
	return of[names[0]]
}
