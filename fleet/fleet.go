package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"

	"github.com/fleet-runtime/fleet-runtime/internal/clientmetrics"
	"github.com/fleet-runtime/fleet-runtime/internal/closed"
	"github.com/fleet-runtime/fleet-runtime/internal/restmapper"
)

// Fleet is the set of members of one manager. It connects what a provider reports, watches over it, and ends it. It is
// safe for concurrent use, and no call of it waits for a cluster, except where that is said.
type Fleet struct {
	opts         Options
	groups       restmapper.Groups // what the members' REST mappers have in common
	clientSeries clientmetrics.Series
	pace         pace
	outage       outage
	missing      outage // of kinds
	problems     problems
	indexes      indexes

	// mu guards what follows, and the fields of members that say so. Nothing remote is awaited under it.
	mu            sync.Mutex
	members       map[ClusterName]*member
	gone          *lru.Cache // the names of members that were removed last, with whether those were about to leave
	labels        *lru.Cache // sets of labels, by their text, that many members may have
	departed      departed
	leavers       []*leaver // of the controllers
	room          room
	identities    identities
	subscriptions map[*subscription]struct{}
	series        seriesKeeper
	queues        map[string]*shownQueue // by controller
	refresher     Refresher              // the provider, nil if it cannot be asked
	ctx           context.Context        //nolint:containedctx // the life of the members' goroutines, nil before Run
	elected       <-chan struct{}        // closed when this replica works on the members
	home          *member                // the local cluster where it has an owner too, nil if it has none or before Run
	guests        map[ClusterName]*sharedGuest
	holds         func(ClusterName) Hold // nil if nobody holds members back
	stopped       bool
	running       sync.WaitGroup // the members' goroutines
}

// New returns a fleet without members. It has none before [Fleet.Run].
func New(opts Options) *Fleet {
	return &Fleet{
		opts:          opts.withDefaults(),
		pace:          newPace(),
		members:       map[ClusterName]*member{},
		gone:          lru.New(mostGoneNames),
		labels:        lru.New(mostLabelSets),
		departed:      departed{},
		identities:    identities{},
		subscriptions: map[*subscription]struct{}{},
	}
}

func (f *Fleet) runLocked(m *member) {
	m.attendLocked()
	f.running.Go(func() { m.run(f.ctx) })
}

func (f *Fleet) set(described Member) error {
	if err := described.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	described.Labels = f.ownLabelsLocked(described.Labels)
	if f.stopped {
		return fmt.Errorf("setting cluster %q: %w", described.Name, ErrStopped)
	}
	f.forgetDepartedLocked(described.Name)
	if m, ok := f.members[described.Name]; ok {
		m.stayLocked(described)
		return nil
	}
	f.joinLocked(report{Member: described})
	return nil
}

func (f *Fleet) addLocked(reported report) {
	m := newMember(f, reported.Member)
	f.members[m.name] = m
	f.gone.Remove(m.name)
	f.changedLocked(m.name)
	m.leaving = reported.leaving
	m.hold = f.holdOfLocked(m.name)
	if m.hold.Leave && m.leaving == nil {
		m.leaving = newHeldLeaving()
	}
	m.claimLocked()
}

func (f *Fleet) remove(name ClusterName) (drained <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetDepartedLocked(name)
	waiting := f.room.waiting[name]
	if f.room.leave(name) {
		waiting.leaving.over()
		f.gone.Add(name, false)
		f.tellLeftOutLocked()
	}
	m, ok := f.members[name]
	if !ok {
		return closed.Channel()
	}
	m.withdrawLocked()
	return m.ended
}

// endedLocked forgets a member that is drained. If it was reported again meanwhile, its successor begins.
func (f *Fleet) endedLocked(m *member) {
	if f.Shared() {
		f.opts.Ownership.Forget(m.name)
	}
	if m == f.home {
		f.home = nil
		close(m.ended)
		return
	}
	delete(f.members, m.name)
	f.gone.Add(m.name, m.leaving != nil)
	f.changedLocked(m.name)
	close(m.ended)
	m.leftLocked()
	if m.successor != nil && !f.stopped {
		f.room.wait(*m.successor)
	}
	f.fillLocked()
}

// Engagement returns the engagement of a member that can be used now, or a [StateError] that says why there is none.
// An [Unreachable] member is not ready, although it is engaged: its cache may be outdated, and requests would hang.
func (f *Fleet) Engagement(name ClusterName) (*Engagement, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.memberLocked(name); m != nil && m.state == Ready {
		return m.engagement, nil
	}
	return nil, f.notReadyLocked(name)
}

// notReadyLocked returns why a name cannot be used.
func (f *Fleet) notReadyLocked(name ClusterName) *StateError {
	if m := f.memberLocked(name); m != nil {
		return m.stateErrorLocked()
	}
	if f.room.waits(name) {
		return &StateError{Err: ErrNotReady, Status: f.leftOutLocked(name)}
	}
	if _, gone := f.gone.Get(name); gone {
		return &StateError{Err: ErrGone, Status: Status{Name: name}}
	}
	return &StateError{Err: ErrUnknown, Status: Status{Name: name}}
}

// memberLocked returns a member, or the local cluster where that has an owner, or nil.
func (f *Fleet) memberLocked(name ClusterName) *member {
	if name == localName {
		return f.home
	}
	return f.members[name]
}

// Status returns what is known of a member, and whether it is a member.
func (f *Fleet) Status(name ClusterName) (Status, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.members[name]
	if !ok {
		return Status{Name: name}, false
	}
	return m.statusLocked(), true
}

// List returns the status of each member that the selector matches, ordered by name. A nil selector matches all.
func (f *Fleet) List(selector labels.Selector) []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Status, 0, len(f.members))
	for _, m := range f.members {
		if selector == nil || selector.Matches(labels.Set(m.described.Labels)) {
			list = append(list, m.statusLocked())
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// mostGoneNames is how many names of members that have left are remembered, to tell gone from unknown.
const mostGoneNames = 1024

// mostLabelSets is how many sets of labels are remembered, so that members with the same labels share one. A map of a single
// label takes as much memory as everything else that describes a member.
const mostLabelSets = 256

// ownLabelsLocked returns labels that are never changed, and equal those that a provider gave.
func (f *Fleet) ownLabelsLocked(given map[string]string) map[string]string {
	if len(given) == 0 {
		return nil
	}
	text := labels.Set(given).String()
	if known, ok := f.labels.Get(text); ok {
		if known, ok := known.(map[string]string); ok && maps.Equal(known, given) {
			return known
		}
	}
	own := maps.Clone(given)
	f.labels.Add(text, own)
	return own
}
