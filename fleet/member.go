package fleet

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// member is the life of one member, from reported to ended. One goroutine, run, moves it through its states. It ends while
// an engaged member has nothing to wait for but news, which start it again:
//
//	Pending      the description is broken          → wait for a better one
//	Connecting   no engagement, a usable description → connect, again and again, until it works
//	Ready        engaged                            → wait for news; a changed description is connected beside it
//	Unreachable  engaged, probes fail               → the probes of health.go bring it back to Ready
//	Suspended    engaged, perhaps not owned now     → wait until ownership is proved, or the member is another replica's
//	Draining     withdrawn, or the fleet ends       → end the engagement, wait until nothing runs for it, end
//	Drained      held back by people                → wait until it is not: see hold.go
//	NotOwned     another replica works on it        → nothing, until this one owns it: see share.go
type member struct {
	fleet *Fleet
	name  ClusterName
	ended chan struct{} // closed when the member is drained and forgotten
	// news has a token when described or withdrawn may be others, and denied when the server did not accept the credentials. Both
	// are nil until run begins: a fleet may have many members on which others work.
	news, denied chan struct{}

	// Guarded by fleet.mu:
	described  Member
	edition    int // of described, from 1 on: it moves when the way to the member may be another
	withdrawn  bool
	stopped    bool     // it is drained since the fleet ends, and not since it was withdrawn
	leaving    *leaving // nil for a member that stays
	departs    bool     // it is drained since it has left
	successor  *report  // what was reported while draining
	state      State
	reason     string
	message    string
	history    history // what it was; empty while another replica works on it
	down       bool    // it counts among those that are down
	since      time.Time
	attempts   int
	rotations  int     // how often it took over new credentials while engaged
	problem    problem // what is wrong with the description while the engagement of an earlier one goes on
	engagement *Engagement
	guests     map[*Guest]struct{}
	visited    visited
	engagedAs  *Member            // what engagement was connected from, with its config; nil before the first
	impostor   bool               // another cluster answers at the address of engagement
	interrupt  context.CancelFunc // ends the attempt to connect that is under way
	resting    bool               // run has ended until there is news
	share      share
	hold       Hold
	server     string // that was tried last, or is used
	measured   measured
	warnings   *warnings

	// replaced engagements are drained beside the one that took their place. Only run adds to it.
	replaced sync.WaitGroup
	// forgetServer ends the use of the server that was dialed last. Only run uses it.
	forgetServer func()
	// refreshed is when the provider was last asked for fresh credentials. Only run uses it.
	refreshed time.Time
	plugin    credplugin.Plugin
}

type problem struct{ reason, message string }

// errOutdated ends an attempt to connect whose description is no longer the latest.
var errOutdated = errors.New("the description changed meanwhile")

func newMember(f *Fleet, described Member) *member {
	m := &member{
		fleet: f, name: described.Name, ended: make(chan struct{}),
		described: described, edition: 1, state: Pending, since: time.Now(), interrupt: func() {},
		measured: measured{reported: time.Now()}, forgetServer: func() {}, warnings: newWarnings(described.Name),
	}
	if !f.Shared() {
		m.attendLocked()
	}
	return m
}

// attendLocked makes what run waits for.
func (m *member) attendLocked() {
	if m.news == nil {
		m.news, m.denied = make(chan struct{}, 1), make(chan struct{}, 1)
	}
}

func (m *member) logger() logr.Logger { return m.fleet.opts.Logger.WithValues("cluster", m.name) }

// describeLocked takes over what a provider reports of a member that is not withdrawn.
func (m *member) describeLocked(described Member) {
	before := m.described
	m.described = described
	if !maps.Equal(before.Labels, described.Labels) || !before.Expires.Equal(described.Expires) ||
		before.server() != described.server() {
		m.fleet.changedLocked(m.name)
	}
	m.relabelledLocked()
	if !sameAccess(before, described) || described.Err != nil {
		m.edition++
		m.interrupt()
		m.renewGuestsLocked()
		m.tellLocked(m.news)
	}
}

// tell leaves a token in news or denied for run.
func (m *member) tell(of chan<- struct{}) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.tellLocked(of)
}

func (m *member) tellLocked(of chan<- struct{}) {
	wake(of)
	m.resumeLocked()
}

// resumeLocked starts run again if it rests. There is nothing to do for a member that is not owned until it ends.
func (m *member) resumeLocked() {
	if m.resting && (m.ownedLocked() || m.withdrawn || m.fleet.stopped) {
		m.resting = false
		m.fleet.runLocked(m)
	}
}

// rest reports whether run may end until there is news.
func (m *member) rest(ctx context.Context) bool {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.resting = ctx.Err() == nil && !m.fleet.stopped && len(m.news) == 0 && len(m.denied) == 0
	return m.resting
}

// withdrawLocked starts the drain.
func (m *member) withdrawLocked() {
	m.dropSuccessorLocked()
	if m.withdrawn {
		return
	}
	m.withdrawn = true
	m.leaving.stop(errRemoved)
	m.dismissLocked(errRemoved)
	if m.ownedLocked() { // else there is nothing to drain, and the replica that owns it says what it is
		m.setStateLocked(Draining, "", "")
	}
	m.interrupt()
	m.tellLocked(m.news)
}

// run lives the member's life. It returns when the member was withdrawn, or ctx is done, and all is drained; or when it
// rests.
func (m *member) run(ctx context.Context) {
	pauses := retry.Pauses(m.fleet.opts.MaxRetryPeriod)
	for ctx.Err() == nil {
		described, engaged, over := m.read()
		if over {
			break
		}
		switch {
		case m.isHeldDrained():
			m.stayDrained(ctx)
			if m.rest(ctx) {
				return
			}
			m.wait(ctx, 0)
		case described.Err != nil:
			m.invalid(described.Err)
			m.wait(ctx, 0)
		case engaged && !m.filesChanged(described):
			pauses = retry.Pauses(m.fleet.opts.MaxRetryPeriod)
			m.noProblem()
			again := m.untilFilesAreRead()
			if again == 0 && m.rest(ctx) {
				return
			}
			m.wait(ctx, again)
		default:
			if err := m.connectOrRotate(ctx, described); err != nil && !errors.Is(err, errOutdated) {
				m.wait(ctx, m.fleet.outage.pause(pauses.Step()))
			}
		}
	}
	m.drain(ctx)
}

// read returns the latest description, whether the member is engaged as it says, and whether it is to be drained.
func (m *member) read() (described Member, engaged, over bool) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e := m.engagement
	engaged = e != nil && e.ctx.Err() == nil && !m.impostor && sameAccess(*m.engagedAs, m.described)
	described = m.described
	if engaged && described.Load != nil {
		described.Config, described.Load = m.engagedAs.Config, nil
	}
	return described, engaged, m.withdrawn || !m.ownedLocked() || m.share.over != nil
}

// wait returns at news, at the end of ctx, or after the given time if it is not zero. Credentials that are not accepted
// are news for the provider first.
func (m *member) wait(ctx context.Context, atMost time.Duration) {
	var after <-chan time.Time
	if atMost > 0 {
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		after = timer.C
	}
	for {
		select {
		case <-m.denied:
			described, engaged, _ := m.read()
			if !engaged || !m.filesChanged(described) {
				m.refresh(ctx)
			}
			if !engaged {
				continue
			}
		case <-m.news:
		case <-after:
		case <-ctx.Done():
		}
		return
	}
}

// explainLocked notes what is wrong: with the member, or, while an engagement goes on, with its description alone. The
// answer is whether the reason is another than before.
func (m *member) explainLocked(reason, message string) (news bool) {
	if m.engagement == nil {
		news = m.reason != reason
		m.setStateLocked(m.state, reason, message)
		return news
	}
	news = m.problem.reason != reason
	m.problem = problem{reason, message}
	if news {
		m.fleet.changedLocked(m.name)
	}
	return news
}

// noProblem notes that the member is engaged as described.
func (m *member) noProblem() {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.problem != (problem{}) {
		m.problem = problem{}
		m.fleet.changedLocked(m.name)
	}
}

// invalid notes that the provider cannot describe the member. An engagement goes on.
func (m *member) invalid(why error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.endsLocked() {
		return
	}
	if m.engagement == nil {
		m.setStateLocked(Pending, m.reason, m.message)
	}
	if m.explainLocked(reasonInvalid(why), message(why)) {
		m.logger().Info("The provider cannot describe the member", "error", message(why))
	}
}

// health notes what the probes of an engagement found, which may not be published yet. If another cluster answers, that is
// for an engagement of its own.
func (m *member) health(e *Engagement, state State, why error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e.state, e.why = state, why
	if m.engagement == e && !m.share.suspended {
		m.healthLocked(e)
	}
}

// healthLocked takes over what the probes of the member's engagement found last.
func (m *member) healthLocked(e *Engagement) {
	state, why := e.state, e.why
	if m.endsLocked() || e.ctx.Err() != nil {
		return
	}
	if m.state != state || m.reason != classify(why) {
		m.logger().Info("Health changed", "state", state, "reason", classify(why), "error", message(why))
	}
	m.setStateLocked(state, classify(why), message(why))
	switch {
	case state == Ready:
		m.impostor = false
	case errors.Is(why, ErrAnotherCluster) && !m.impostor:
		m.impostor = true
		m.tellLocked(m.news)
	}
}

// drain ends what runs for the member and forgets it, unless it goes to another replica: then its description stays.
func (m *member) drain(ctx context.Context) {
	e, why := m.whyDrained()
	if e != nil {
		e.end(why)
		m.awaitDrain(context.WithoutCancel(ctx), e) // what is still running holds the member until it returns
	}
	m.replaced.Wait()
	m.forgetServer()

	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.ownedLocked() {
		m.logger().Info("Disengaged", "why", why.Error())
	}
	if e != nil {
		m.fleet.notIdentifiedLocked(e)
	}
	m.releaseLocked()
	if m.withdrawn {
		m.fleet.endedLocked(m)
		return
	}
	m.claimLocked()
}

// whyDrained returns the last engagement, nil if there is none, and why it ends. A member that is neither withdrawn nor goes to
// another replica ends with the fleet.
func (m *member) whyDrained() (*Engagement, error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	switch {
	case m.withdrawn && m.departs:
		return m.engagement, errLeft
	case m.withdrawn:
		return m.engagement, errRemoved
	case m.share.over != nil && !m.fleet.stopped:
		return m.engagement, m.share.over
	}
	m.stopped = true
	m.withdrawLocked()
	return m.engagement, ErrStopped
}

// setStateLocked notes a state, and tells of it if it is another one or has another reason. A message alone is no news: it
// has ports and times, which are others at each attempt.
func (m *member) setStateLocked(state State, reason, message string) {
	news := m.state != state || m.reason != reason
	if m.state != state {
		m.since = time.Now()
	}
	m.state, m.reason, m.message = state, reason, message
	if news || m.history == nil {
		m.rememberLocked()
	}
	m.countDownLocked(state == Unreachable || state == Connecting && reason != "")
	if news {
		m.fleet.changedLocked(m.name)
	}
}

// countDownLocked keeps count of the members that are down.
func (m *member) countDownLocked(down bool) {
	if down == m.down {
		return
	}
	m.down = down
	if down {
		m.fleet.outage.down.Add(1)
	} else {
		m.fleet.outage.down.Add(-1)
	}
}

// unreachable returns the error for requests to a member that is Unreachable, nil if it is not.
func (m *member) unreachable() *StateError {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.state != Unreachable {
		return nil
	}
	return &StateError{Err: ErrNotReady, Status: Status{
		Name: m.name, State: m.state, Reason: m.reason, Message: m.message, Since: m.since,
	}}
}

// changed tells that what the status says of the member may be something else.
func (m *member) changed() {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.changedLocked(m.name)
}

func (m *member) statusLocked() Status {
	s := Status{
		Name: m.name, Labels: maps.Clone(m.described.Labels), State: m.state, Leaving: m.leaving != nil,
		Reason: m.reason, Message: m.message, Since: m.since, Attempts: m.attempts, Expires: m.described.Expires,
		Server: m.serverLocked(), Paused: m.isPausedLocked(),
	}
	if m.state == Drained && m.isHeldDrainedLocked() {
		s.Message = m.hold.message() // which people may have changed meanwhile
	}
	m.share.tell(&s)
	if m.engagement == nil {
		return s
	}
	s.Identity, s.Duplicates = m.engagement.identity, m.fleet.identities.othersLocked(m.engagement)
	s.NotSynced = m.engagement.kinds.status()
	switch {
	case m.state == Draining && s.Message == "":
		s.Message = m.engagement.busy()
	case s.Reason != "":
	case m.problem.reason != "":
		s.Reason, s.Message = m.problem.reason, m.problem.message
	case s.NotSynced != nil:
		s.Reason, s.Message = ReasonNotSynced, notSyncedMessage(s.NotSynced)
	case s.Paused && m.state == Ready:
		s.Reason, s.Message = ReasonPaused, m.hold.message()
	}
	return s
}
