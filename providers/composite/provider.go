// Package composite makes one provider of several.
package composite

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

// Separator stands between the prefix of a provider and the name that the provider gives a member, as in
// "aws#team-a/prod". No name of a Kubernetes object has it.
const Separator = "#"

// ReasonProviderFailed is for the [fleet.Problem] of a provider that has returned an error or panicked.
const ReasonProviderFailed = "ProviderFailed"

// Provider is a [fleet.Provider] of the members of several, by prefix. The member NAME of the provider "aws" is
// "aws#NAME". The names of the provider "", if there is one, stay as they are; it may report none that begin with the
// prefix of another. So no two can report the same name. A Provider must not be changed after Run was called.
//
// Problems have the prefix as well: those of the provider "aws" are of "aws#NAME". They end when the provider
// fails.
//
// A provider that returns an error or panics is started again, at first after a second, later after up to a minute.
// That is logged, is a problem of [ReasonProviderFailed] until it reports a member again, and stops no other. Its members
// stay as they are meanwhile, and after that: those that are no longer there when it is started again, it never
// withdraws, since it knows nothing of them. They show as Unreachable if their clusters are gone, and leave with the
// process.
type Provider map[string]fleet.Provider

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It returns an error only for prefixes that cannot be used, or no provider at one.
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if err := p.validate(); err != nil {
		return err
	}
	var running sync.WaitGroup
	for prefix, provider := range p {
		running.Go(func() {
			ctx := logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("prefix", prefix))
			keepRunning(ctx, provider, local, &prefixed{prefix: prefix, all: p, members: members, problems: map[subject]bool{}})
		})
	}
	<-ctx.Done()
	running.Wait()
	return nil
}

func (p Provider) validate() error {
	var errs []error
	for prefix, provider := range p {
		if provider == nil {
			errs = append(errs, fmt.Errorf("providers/composite: there is no provider for the prefix %q", prefix))
		}
		if prefix == "" {
			continue
		}
		if err := (fleet.Member{Name: fleet.ClusterName(prefix), Config: &rest.Config{}}).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("providers/composite: the prefix cannot be a part of names: %w", err))
		}
		if strings.Contains(prefix, Separator) {
			errs = append(errs, fmt.Errorf("providers/composite: the prefix %q has a %q", prefix, Separator))
		}
	}
	return errors.Join(errs...)
}

// keepRunning runs a provider until ctx is done, or until it has ended without an error.
func keepRunning(ctx context.Context, p fleet.Provider, local cluster.Cluster, members *prefixed) {
	// A run of ten minutes was a good one: the next failure is the first again.
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: time.Minute}
	delay := backoff.DelayWithReset(clock.RealClock{}, 10*time.Minute)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (ended bool, _ error) {
		if err := runOnce(ctx, p, local, members); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "A provider has failed. Its members stay as they are, and it is started again")
			members.fail(err)
			return false, nil
		}
		return true, nil
	})
}

// runOnce makes an error of a panic.
func runOnce(ctx context.Context, p fleet.Provider, local cluster.Cluster, members fleet.Members) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			logf.FromContext(ctx).Error(nil, "Panic in a provider", "stack", string(debug.Stack()))
			err = fmt.Errorf("the provider %T panicked (%T)", p, panicked)
		}
	}()
	return p.Run(ctx, local, members)
}

// prefixed is what one provider reports to.
type prefixed struct {
	prefix  string
	all     Provider
	members fleet.Members
	failed  atomic.Bool // and has reported no member since

	mu       sync.Mutex // guards problems, and that they are reported in the order in which they are noted
	problems map[subject]bool
}

// subject is what tells problems apart.
type subject struct {
	provider, about string
	member          fleet.ClusterName
}

// Set implements [fleet.Members].
func (p *prefixed) Set(m fleet.Member) error {
	if err := p.report(&m); err != nil {
		return err
	}
	return p.members.Set(m)
}

// Leave implements [fleet.Members].
func (p *prefixed) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	if err := p.report(&m); err != nil {
		return nil, err
	}
	return p.members.Leave(m)
}

// report gives a member that the provider reports its prefix.
func (p *prefixed) report(m *fleet.Member) error {
	if err := m.Validate(); err != nil { // no name is none, also under a prefix
		return err
	}
	if other, ok := p.others(m.Name); ok {
		return fmt.Errorf("%w %q: names that begin with %q belong to another provider", fleet.ErrInvalidMember, m.Name, other+Separator)
	}
	m.Name = p.full(m.Name)
	if p.failed.CompareAndSwap(true, false) {
		p.members.SetProblem(p.failure(nil))
	}
	return nil
}

// Remove implements [fleet.Members].
func (p *prefixed) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	if _, ok := p.others(name); ok {
		return closed.Channel() // it was refused when it was reported
	}
	return p.members.Remove(p.full(name))
}

// SetProblem implements [fleet.Members].
func (p *prefixed) SetProblem(problem fleet.Problem) {
	if problem.Member != "" {
		problem.Member = p.full(problem.Member)
	}
	if p.prefix != "" {
		problem.Provider = p.prefix + Separator + problem.Provider
	}
	of := subject{problem.Provider, problem.About, problem.Member}
	p.mu.Lock()
	defer p.mu.Unlock()
	if problem.Reason == "" {
		delete(p.problems, of)
	} else {
		p.problems[of] = true
	}
	p.members.SetProblem(problem)
}

// endProblems ends the problems of a run that has failed: the next one knows nothing of them.
func (p *prefixed) endProblems() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for of := range p.problems {
		p.members.SetProblem(fleet.Problem{Provider: of.provider, About: of.about, Member: of.member})
	}
	clear(p.problems)
}

// fail reports that the provider has failed.
func (p *prefixed) fail(err error) {
	p.endProblems()
	p.failed.Store(true)
	p.members.SetProblem(p.failure(err))
}

// failure returns the problem of a provider that has failed, or what ends it.
func (p *prefixed) failure(err error) fleet.Problem {
	problem := fleet.Problem{Provider: "composite", About: fmt.Sprintf("the provider %q", p.prefix)}
	if err != nil {
		problem.Reason = ReasonProviderFailed
		problem.Message = fmt.Sprintf("its members stay as they are, and it is started again: %v", err)
	}
	return problem
}

// others returns the prefix of another provider, if the name would be one of its.
func (p *prefixed) others(name fleet.ClusterName) (prefix string, ok bool) {
	before, _, found := strings.Cut(string(name), Separator)
	if p.prefix != "" || before == "" || !found {
		return "", false
	}
	_, ok = p.all[before]
	return before, ok
}

func (p *prefixed) full(name fleet.ClusterName) fleet.ClusterName {
	if p.prefix == "" {
		return name
	}
	return fleet.ClusterName(p.prefix+Separator) + name
}
