package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

// Run lives the life of the fleet: it runs the provider, whose members it connects and watches over until ctx is done, and
// returns when every member is drained. local is the cluster that the manager runs against, for providers that discover by
// objects in it. If local has a method Elected, as a manager has, members leave well only after its channel is closed: see
// [Members.Leave]. Without a provider, nil, the fleet stays empty. A manager of mcmanager calls Run; it may be called once.
//
// An error of the provider ends the fleet. Run then returns it, at the latest after half a minute.
func (f *Fleet) Run(ctx context.Context, local cluster.Cluster, provider Provider) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := f.begin(ctx, local, provider); err != nil {
		return err
	}
	defer f.exportMetrics()()
	given := f.takePart(ctx, local, cancel)
	if provider != nil {
		f.running.Go(func() {
			if err := provider.Run(ctx, local, members{f}); err != nil {
				cancel(providerFailed{fmt.Errorf("running the provider %s: %w", nameOf(provider), err)}) // unless ctx is done
			}
		})
	}
	<-ctx.Done()
	f.end()
	if failed, ok := context.Cause(ctx).(providerFailed); ok { //nolint:errorlint // it is this very fleet's, and no other's
		f.opts.Logger.Error(failed.error, "The provider has failed: the fleet ends")
		return f.giveUp(failed.error)
	}
	f.running.Wait()
	given()
	if failed, ok := context.Cause(ctx).(partFailed); ok { //nolint:errorlint // as above
		return failed.error
	}
	return nil
}

// takePart lets this replica share the members with others, if several do. given waits until it has given up what it owned.
func (f *Fleet) takePart(ctx context.Context, local cluster.Cluster, stop context.CancelCauseFunc) (given func()) {
	if !f.Shared() {
		return func() {}
	}
	var taking sync.WaitGroup
	taking.Go(func() {
		if err := f.opts.Ownership.Run(ctx, local, f.ownershipChanged); err != nil {
			stop(partFailed{fmt.Errorf("sharing the members with other replicas: %w", err)}) // unless ctx is done
		}
	})
	f.claimHome(local)
	return taking.Wait
}

// claimHome claims the local cluster: requests for it, of controllers that run on every replica, are one replica's too.
func (f *Fleet) claimHome(local cluster.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.home = newMember(f, Member{Name: localName, Cluster: local})
	f.home.claimLocked()
}

// providerFailed is why a fleet ends by itself.
type providerFailed struct{ error }

// Unwrap returns the provider's error.
func (f providerFailed) Unwrap() error { return f.error }

// partFailed is why a fleet ends that cannot be shared.
type partFailed struct{ error }

// Unwrap returns the error of the [Ownership].
func (f partFailed) Unwrap() error { return f.error }

func (f *Fleet) begin(ctx context.Context, local cluster.Cluster, provider Provider) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx != nil {
		return errors.New("the fleet was run before")
	}
	f.ctx = ctx
	f.refresher, _ = provider.(Refresher)
	f.elected = closed.Channel()
	if m, ok := local.(interface{ Elected() <-chan struct{} }); ok && !f.Shared() {
		f.elected = m.Elected()
	}
	return nil
}

// end lets every member end, whose context has ended.
func (f *Fleet) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, m := range f.members {
		m.resumeLocked()
	}
	if f.home != nil {
		f.home.resumeLocked()
	}
}

// endPatience is how long the members may take to be drained when the provider has failed: as long as controller-runtime's
// managers give to what they run. The program is about to end, so what hangs is not to keep it from that.
const endPatience = 30 * time.Second

// giveUp drains the members after the provider has failed.
func (f *Fleet) giveUp(why error) error {
	drained := make(chan struct{})
	go func() {
		f.running.Wait()
		close(drained)
	}()
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	select {
	case <-drained:
		return why
	case <-timer.C:
		return fmt.Errorf("%w; members are not drained after %v, such as %v", why, endPatience, f.draining())
	}
}

// draining returns the names of the members that are being drained, of which an error is to name only some.
func (f *Fleet) draining() []ClusterName {
	var names []ClusterName
	for _, status := range f.List(nil) {
		if status.State == Draining && len(names) < 3 {
			names = append(names, status.Name)
		}
	}
	return names
}

// nameOf is how logs and errors call a provider.
func nameOf(p Provider) string {
	if named, ok := p.(fmt.Stringer); ok {
		return fmt.Sprintf("%q", named)
	}
	return fmt.Sprintf("%T", p)
}

// members is what a provider reports to.
type members struct{ fleet *Fleet }

var _ Members = members{}

// Set implements [Members].
func (m members) Set(described Member) error { return m.fleet.set(described) }

// Leave implements [Members].
func (m members) Leave(described Member) (left <-chan struct{}, err error) {
	return m.fleet.leave(described)
}

// Remove implements [Members].
func (m members) Remove(name ClusterName) (drained <-chan struct{}) { return m.fleet.remove(name) }

// SetProblem implements [Members].
func (m members) SetProblem(p Problem) { m.fleet.problems.set(m.fleet.opts.Logger, p) }
