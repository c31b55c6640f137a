// Package remote is how packages dependents and orphans work on clusters: which there are, what is there, and how
// something is taken away.
package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/late"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Access reaches the clusters of a manager, in the name of a controller.
type Access struct {
	Manager    mcmanager.Manager
	Who        string        // what works on them
	Timeout    time.Duration // of each request
	Identities *mcmanager.Identities

	unserved PerEngagement[*unserved]
}

// DefaultTimeout is that of a request.
const DefaultTimeout = 10 * time.Second

// NewAccess returns access for a controller. byName allows clusters of which it cannot be told which they are.
func NewAccess(mgr mcmanager.Manager, who string, timeout time.Duration, byName bool) *Access {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Access{Manager: mgr, Who: who, Timeout: timeout, Identities: &mcmanager.Identities{Manager: mgr, ByName: byName}}
}

// Names returns which clusters there are, in whatever state.
func (a *Access) Names(in mcowner.Clusters) []mcreconcile.ClusterName {
	var names []mcreconcile.ClusterName
	fleetless := a.Manager.GetProvider() == nil
	if in.Local || fleetless {
		names = append(names, mcreconcile.LocalCluster)
	}
	if in.HasMembers() && !fleetless {
		for _, member := range a.Manager.GetFleet().List(in.Members) {
			names = append(names, member.Name)
		}
	}
	return names
}

// Within reports whether a cluster is one of these.
func (a *Access) Within(in mcowner.Clusters, name mcreconcile.ClusterName) bool {
	fleetless := a.Manager.GetProvider() == nil
	if name == mcreconcile.LocalCluster {
		return in.Local || fleetless
	}
	return in.HasMembers() && !fleetless && (in.Members == nil || in.Members.Matches(a.LabelsOf(name)))
}

// LabelsOf returns the labels of a member.
func (a *Access) LabelsOf(name mcreconcile.ClusterName) labels.Set {
	status, _ := a.Manager.GetFleet().Status(name)
	return status.Labels
}

// WhyNot returns why a cluster cannot be used now, nil if it can. One that another replica works on can be visited.
func (a *Access) WhyNot(name mcreconcile.ClusterName) error {
	if name == mcreconcile.LocalCluster {
		return nil
	}
	_, err := a.Manager.GetFleet().Engagement(name)
	if errors.Is(err, fleet.ErrNotOwned) {
		return nil
	}
	return err
}

// WhyPaused returns what says that people hold a member back, so that this replica works on nothing there for now. It is nil if they do not,
// and where replicas share the members: a visit is no reconcile of the member.
func (a *Access) WhyPaused(name mcreconcile.ClusterName) error {
	if a.IsShared() {
		return nil
	}
	return a.WhyHeld(name)
}

// WhyHeld returns what says that people have paused a cluster, so that nothing of its own begins there. It is nil if they have not.
func (a *Access) WhyHeld(name mcreconcile.ClusterName) error {
	if name == mcreconcile.LocalCluster {
		return nil
	}
	status, _ := a.Manager.GetFleet().Status(name)
	if !status.Paused {
		return nil
	}
	return &fleet.StateError{Err: pausedError{}, Status: status}
}

// pausedError is the [fleet.ErrNotReady] of a cluster that may be Ready.
type pausedError struct{}

func (pausedError) Error() string { return "the cluster is paused" }

// Unwrap returns what it is to those that wait for clusters.
func (pausedError) Unwrap() error { return fleet.ErrNotReady }

// Current returns the session of the cluster of a reconcile's context, which ends with the reconcile. The error wraps
// fleet.ErrDisengaged if the cluster was connected anew.
func (a *Access) Current(ctx context.Context) (Session, error) {
	name, ok := mcreconcile.ClusterNameFrom(ctx)
	if !ok {
		return Session{}, errors.New("the context carries no cluster")
	}
	id, err := a.Identities.Of(ctx, name)
	if err != nil {
		return Session{}, err
	}
	at := Session{ID: id, Cluster: mcreconcile.ClusterFrom(ctx)}
	if name != mcreconcile.LocalCluster {
		if at.Engagement, err = a.Manager.GetFleet().Engagement(name); err != nil {
			return Session{}, err
		}
	}
	return at, nil
}

// Engagement returns the engagement of a cluster that can be used now as this replica's, nil if there is none: the local cluster has none.
func (a *Access) Engagement(name mcreconcile.ClusterName) *fleet.Engagement {
	if name == mcreconcile.LocalCluster {
		return nil
	}
	engagement, err := a.Manager.GetFleet().Engagement(name)
	if err != nil {
		return nil
	}
	return engagement
}

// enter returns a cluster that can be used now, and a context that ends with its engagement, which is not drained before
// leave was called. The error is a fleet.StateError, or wraps fleet.ErrDisengaged.
func (a *Access) enter(ctx context.Context, name mcreconcile.ClusterName) (_ context.Context, _ Session, leave func(), err error) {
	if name == mcreconcile.LocalCluster {
		bounded, cancel := a.Bound(ctx)
		defer cancel()
		id, err := a.Identities.Of(bounded, name)
		return ctx, Session{ID: id, Cluster: a.Manager}, func() {}, err
	}
	engagement, err := a.Manager.GetFleet().Engagement(name)
	if a.IsElsewhere(name) {
		return a.enterAsGuest(ctx, name)
	}
	if err != nil {
		return nil, Session{}, nil, err
	}
	id, err := a.Identities.OfEngagement(engagement)
	if err != nil {
		return nil, Session{}, nil, err
	}
	ctx, leave, err = engagement.Join(ctx, work(a.Who))
	if err != nil {
		return nil, Session{}, nil, err
	}
	return ctx, Session{ID: id, Cluster: engagement.Cluster(), Engagement: engagement}, leave, nil
}

// work says what keeps an engagement from being drained.
type work string

func (w work) String() string { return "work of controller " + string(w) + " on dependents" }

// Visit calls do with a cluster that can be used now, as a guest if another replica works on it. The error says so if that ended meanwhile.
func (a *Access) Visit(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, Session) error) error {
	inside, at, leave, err := a.enter(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	if err := do(inside, at); err != nil {
		if cause := context.Cause(inside); errors.Is(cause, fleet.ErrDisengaged) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	return nil
}

// UIDNow returns which cluster it is, asked at this moment where the fleet would not notice that another one answers.
func (a *Access) UIDNow(ctx context.Context, at Session) (types.UID, error) {
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	if at.Guest != nil {
		now, err := a.Identities.OfGuestNow(ctx, at.Name(), at.Guest)
		return now.UID, err
	}
	now, err := a.Identities.Now(ctx, at.Engagement)
	return now.UID, err
}

// IsAway reports whether an error says that a cluster cannot be used now. It is no fault of what was tried there. One in which only a kind
// cannot be read is not away: that error is a [fleet.ErrNotReady] as well, but has none below it.
func IsAway(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes down the tree itself
	case *fleet.StateError:
		return true
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), IsAway)
	case interface{ Unwrap() error }:
		return IsAway(e.Unwrap())
	default:
		return slices.Contains([]error{ErrNoVisit, fleet.ErrDisengaged, fleet.ErrNotReady}, err)
	}
}

// IsAwayItself reports whether an error says so of one cluster. What is done there may need others, which are away.
func IsAwayItself(err error, name mcreconcile.ClusterName) bool {
	named := NamedAway(err)
	return slices.Contains(named, name) || len(named) == 0 && IsAway(err)
}

// NamedAway returns the clusters that an error names which cannot be used now.
func NamedAway(err error) []mcreconcile.ClusterName { return namedIn(err, nil) }

// NamedGone returns those of them that were gone.
func NamedGone(err error) []mcreconcile.ClusterName { return namedIn(err, fleet.ErrGone) }

// namedIn returns the clusters that an error names by errors that are so; all, if that is nil.
func namedIn(err, so error) (names []mcreconcile.ClusterName) {
	switch e := err.(type) { //nolint:errorlint // it goes down the tree itself
	case *fleet.StateError:
		if so == nil || errors.Is(e, so) {
			return []mcreconcile.ClusterName{e.Status.Name}
		}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			names = append(names, namedIn(one, so)...)
		}
	case interface{ Unwrap() error }:
		return namedIn(e.Unwrap(), so)
	}
	return names
}

// IsMissing reports whether an error says that a cluster is not in the fleet.
func IsMissing(err error) bool {
	return errors.Is(err, fleet.ErrGone) || errors.Is(err, fleet.ErrUnknown)
}

// ReportedLate returns for how long a cluster is to be missed until it counts as gone, by why it cannot be used: one that was not
// reported may come yet.
func ReportedLate(missing error) time.Duration {
	if errors.Is(missing, fleet.ErrUnknown) {
		return late.Most
	}
	return 0
}

// IsHung reports whether something gave no answer in time: the API server, or what that has asked. Of a webhook it says so
// by an internal error.
func IsHung(err error) bool { return IsSilent(err) || apierrors.IsInternalError(err) }

// IsSilent reports whether the API server itself gave no answer in time, or says so.
func IsSilent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// Bound bounds one request.
func (a *Access) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, a.Timeout, fmt.Errorf("no answer within %s: %w", a.Timeout, context.DeadlineExceeded))
}
