package reference

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
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

	mu      sync.Mutex // guards what follows; Set of the members, which never waits, is called under it
	claimed map[fleet.ClusterName]*claimed
}

// claimed is a member that objects claim.
type claimed struct {
	claims   map[fleet.ClusterName]fleet.Member
	removing bool // the member is being drained; it is reported again after that if it is claimed then
}

func newClaims(members fleet.Members) *claims {
	return &claims{Members: members, claimed: map[fleet.ClusterName]*claimed{}}
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
		of = &claimed{claims: map[fleet.ClusterName]fleet.Member{}}
		c.claimed[m.Name] = of
	}
	of.claims[claim] = m
	if of.removing {
		return nil
	}
	err := c.Members.Set(of.best())
	if err != nil { // nobody removes what was not taken
		delete(of.claims, claim)
		if len(of.claims) == 0 {
			delete(c.claimed, m.Name)
		}
	}
	return err
}

// Remove implements [fleet.Members]. Removing the last claim removes the member.
func (c *claims) Remove(ctx context.Context, claim fleet.ClusterName) error {
	name := memberOf(claim)
	if !c.let(ctx, name, claim) {
		return nil
	}
	err := c.Members.Remove(ctx, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.claimed[name]
	of.removing = false
	if len(of.claims) == 0 {
		delete(c.claimed, name)
		return err
	}
	return errors.Join(err, c.Members.Set(of.best()))
}

// SetProblem implements [fleet.Members].
func (c *claims) SetProblem(p fleet.Problem) {
	p.Member = memberOf(p.Member)
	c.Members.SetProblem(p)
}

// let lets go of a claim. The answer is whether the member is to be removed, which the caller then does.
func (c *claims) let(ctx context.Context, name, claim fleet.ClusterName) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.claimed[name]
	if of == nil {
		return false
	}
	delete(of.claims, claim)
	switch {
	case of.removing:
		return false
	case len(of.claims) == 0:
		of.removing = true
		return true
	}
	if err := c.Members.Set(of.best()); err != nil && !errors.Is(err, fleet.ErrStopped) {
		logf.FromContext(ctx).Error(err, "The member cannot be reported as another object describes it", "cluster", name)
	}
	return false
}

// best returns the member as the first claim describes it, by name, which describes a way to reach it. All replicas come to
// the same.
func (of *claimed) best() fleet.Member {
	names := slices.Sorted(maps.Keys(of.claims))
	for _, claim := range names {
		if of.claims[claim].Err == nil {
			return of.claims[claim]
		}
	}
	return of.claims[names[0]]
}
