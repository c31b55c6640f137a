package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

const (
	// kubeconfigsEvery is how many times kind is asked for its clusters until it is asked for the kubeconfigs of known
	// ones too. Those cost seven runs of a program for each cluster, and show one that was made anew in between.
	kubeconfigsEvery = 12
	// answerPatience is how long an answer may take until that is said.
	answerPatience = 30 * time.Second
	// endPatience is how long the end waits for an answer that is under way.
	endPatience = 5 * time.Second
)

// follower keeps the fleet in step with kind.
type follower struct {
	provider Provider
	detect   func() (engine, error)
	members  fleet.Members

	engine engine // nil until one is detected, and after it has failed
	asked  int
	known  map[string]described // what the fleet has, by the name of the cluster
}

// described is a member, and whether there is such a cluster.
type described struct {
	fleet.Member

	exists bool
}

func newFollower(p Provider, detect func() (engine, error), members fleet.Members) *follower {
	return &follower{
		provider: p, detect: detect, members: members, known: map[string]described{},
	}
}

func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(f.provider.Interval)
	defer tick.Stop()
	for {
		answers := make(chan answer, 1)
		ask := f.question()
		go func() { answers <- ask() }()
		if !f.await(ctx, answers) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// answer is what kind says.
type answer struct {
	engine  engine
	members map[string]fleet.Member // by the names of the clusters
	err     error                   // why there is no answer
}

// question returns what to ask kind now. The function may be called in another goroutine. Members whose kubeconfig it does
// not ask for are what they are now, also if the answer comes so late that they say something else by then.
func (f *follower) question() func() answer {
	p, e, detect := f.provider, f.engine, f.detect
	good := map[string]fleet.Member{}
	for name, known := range f.known {
		if known.Err == nil && f.asked%kubeconfigsEvery != 0 {
			good[name] = known.Member
		}
	}
	f.asked++
	return func() (a answer) {
		if e == nil {
			if e, a.err = detect(); a.err != nil {
				return a
			}
		}
		names, err := list(e)
		if err != nil {
			return answer{err: err}
		}
		a = answer{engine: e, members: map[string]fleet.Member{}}
		for _, name := range names {
			if !p.takes(name) {
				continue
			}
			m, ok := good[name]
			if !ok {
				m = describe(e, name, p.Internal)
			}
			a.members[name] = m
		}
		return a
	}
}

// await waits for the answer and reports it. The result is false when ctx is done.
func (f *follower) await(ctx context.Context, answers <-chan answer) bool {
	late := time.NewTimer(answerPatience)
	defer late.Stop()
	for {
		select {
		case a := <-answers:
			f.take(a)
			return true
		case <-late.C:
			f.failed(fmt.Errorf("asking for the kind clusters: no answer for %s; the container engine may hang", answerPatience))
		case <-ctx.Done():
			late.Reset(endPatience)
			select {
			case <-answers:
			case <-late.C:
			}
			return false
		}
	}
}

// take reports what kind has answered.
func (f *follower) take(a answer) {
	f.engine = a.engine
	if a.err != nil {
		f.failed(a.err)
		return
	}
	f.tell("clusters", "", nil)
	now := map[string]described{}
	for _, name := range f.provider.named() {
		err := fmt.Errorf("there is no kind cluster %q", name)
		now[name] = described{Member: f.provider.member(name, fleet.Member{Err: fault{err, ReasonNoCluster}})}
	}
	for name, m := range a.members {
		now[name] = described{f.provider.member(name, m), true}
	}
	f.withdraw(now)
	f.report(now)
}

// failed reports that kind cannot be asked: clusters that are known may be there or not.
func (f *follower) failed(err error) {
	f.tell("clusters", ReasonNoEngine, err)
	now := maps.Clone(f.known)
	for _, name := range f.provider.named() {
		if _, ok := now[name]; !ok {
			now[name] = described{}
		}
	}
	for name, d := range now {
		now[name] = described{f.provider.member(name, fleet.Member{Err: fault{err, ReasonNoEngine}}), d.exists}
	}
	f.report(now)
}

// withdraw removes the members whose clusters are gone.
func (f *follower) withdraw(now map[string]described) {
	for cluster, known := range f.known {
		if known.exists && !now[cluster].exists {
			delete(f.known, cluster)
			f.members.Remove(known.Name)
		}
	}
}

// report tells the fleet what is new.
func (f *follower) report(now map[string]described) {
	for _, cluster := range slices.Sorted(maps.Keys(now)) {
		known, ok := f.known[cluster]
		if ok && known.equal(now[cluster]) {
			continue
		}
		err := f.members.Set(now[cluster].Member)
		if errors.Is(err, fleet.ErrStopped) {
			return
		}
		f.tell("cluster "+cluster, objects.ReasonInvalidMember, err)
		if err == nil {
			f.known[cluster] = now[cluster]
		}
	}
}

// equal reports whether a report of other would be no news.
func (d described) equal(other described) bool {
	sameErr := d.Err == nil && other.Err == nil || d.Err != nil && other.Err != nil && d.Err.Error() == other.Err.Error()
	return sameErr && d.exists == other.exists && d.Revision == other.Revision && maps.Equal(d.Labels, other.Labels)
}

// tell reports a problem, or that there is none any more.
func (f *follower) tell(about, reason string, err error) {
	p := fleet.Problem{Provider: "kind", About: about}
	if err != nil {
		p.Reason, p.Message = reason, err.Error()
	}
	f.members.SetProblem(p)
}
