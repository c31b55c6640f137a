package fleet

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// member is the life of one member, from reported to ended. One goroutine, run, moves it through its states:
//
//	Pending      the description is broken          → wait for a better one
//	Connecting   no engagement, a usable description → connect, again and again, until it works
//	Ready        engaged                            → wait for news; a changed description is connected beside it
//	Unreachable  engaged, probes fail               → the probes of health.go bring it back to Ready
//	Draining     withdrawn, or the fleet ends       → end the engagement, wait until nothing runs for it, end
type member struct {
	fleet *Fleet
	name  ClusterName
	log   logr.Logger
	news  chan struct{} // has a token when described or withdrawn may be others
	ended chan struct{} // closed when the member is drained and forgotten
	// denied has a token when the server did not accept the credentials.
	denied chan struct{}

	// Guarded by fleet.mu:
	described  Member
	withdrawn  bool
	successor  *Member // what was reported while draining
	state      State
	reason     string
	message    string
	since      time.Time
	attempts   int
	rotations  int     // how often it took over new credentials while engaged
	problem    problem // what is wrong with the description while the engagement of an earlier one goes on
	engagement *Engagement
	engagedAs  Member             // what engagement was connected from
	impostor   bool               // another cluster answers at the address of engagement
	interrupt  context.CancelFunc // ends the attempt to connect that is under way
	measured   measured

	// replaced engagements are drained beside the one that took their place. Only run adds to it.
	replaced sync.WaitGroup
	// forgetServer ends the use of the server that was dialed last. Only run uses it.
	forgetServer func()
	// refreshed is when the provider was last asked for fresh credentials. Only run uses it.
	refreshed time.Time
	plugin    plugin
}

type problem struct{ reason, message string }

// errOutdated ends an attempt to connect whose description is no longer the latest.
var errOutdated = errors.New("the description changed meanwhile")

func newMember(f *Fleet, described Member) *member {
	return &member{
		fleet: f, name: described.Name, log: f.opts.Logger.WithValues("cluster", described.Name),
		news: make(chan struct{}, 1), ended: make(chan struct{}), denied: make(chan struct{}, 1),
		described: described, state: Pending, since: time.Now(), interrupt: func() {},
		measured: measured{reported: time.Now()}, forgetServer: func() {},
	}
}

// describeLocked takes over what a provider reports.
func (m *member) describeLocked(described Member) {
	if m.withdrawn {
		m.successor = &described
		return
	}
	before := m.described
	m.described = described
	if !maps.Equal(before.Labels, described.Labels) || !before.Expires.Equal(described.Expires) {
		m.fleet.changedLocked(m.name)
	}
	if !sameAccess(before, described) || before.Err != nil || described.Err != nil {
		m.interrupt()
		wake(m.news)
	}
}

// withdrawLocked starts the drain.
func (m *member) withdrawLocked() {
	m.successor = nil
	if m.withdrawn {
		return
	}
	m.withdrawn = true
	m.setStateLocked(Draining, "", "")
	m.interrupt()
	wake(m.news)
}

// waitEnded waits for the end of a withdrawn member.
func (m *member) waitEnded(ctx context.Context) error {
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		m.fleet.mu.Lock()
		e := m.engagement
		m.fleet.mu.Unlock()
		if e == nil {
			return context.Cause(ctx)
		}
		return e.stillBusy(ctx)
	}
}

// run lives the member's life. It returns when the member was withdrawn, or ctx is done, and all is drained.
func (m *member) run(ctx context.Context) {
	pause := backoff{most: m.fleet.opts.MaxRetryPeriod}
	for ctx.Err() == nil {
		described, engaged, withdrawn := m.read()
		if withdrawn {
			break
		}
		switch {
		case described.Err != nil:
			m.invalid(described.Err)
			m.wait(ctx, 0)
		case engaged && !m.filesChanged(described):
			pause.reset()
			m.noProblem()
			m.wait(ctx, m.untilFilesAreRead())
		default:
			if err := m.connectOrRotate(ctx, described); err != nil && !errors.Is(err, errOutdated) {
				m.wait(ctx, pause.next())
			}
		}
	}
	m.drain(ctx)
}

// read returns the latest description, and whether the member is engaged as it says.
func (m *member) read() (described Member, engaged, withdrawn bool) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e := m.engagement
	engaged = e != nil && e.ctx.Err() == nil && !m.impostor && sameAccess(m.engagedAs, m.described)
	return m.described, engaged, m.withdrawn
}

// readFilesEvery is how often certificates in files are read again. They are read at once when the server refuses them.
const readFilesEvery = time.Minute

// untilFilesAreRead returns the time until files are to be read again, and zero if the engagement has nothing of any.
func (m *member) untilFilesAreRead() time.Duration {
	if m.files() == (files{}) {
		return 0
	}
	return readFilesEvery
}

// filesChanged reports whether the engagement has other certificates than those in the files that its config names.
func (m *member) filesChanged(described Member) bool {
	read := m.files()
	return read != (files{}) && read.haveChanged(m.fleet.usable(described))
}

// files returns what the engagement has of files.
func (m *member) files() files {
	m.fleet.mu.Lock()
	e := m.engagement
	m.fleet.mu.Unlock()
	if e == nil || e.wire == nil {
		return files{}
	}
	return e.wire.current.Load().files
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
			if engaged && m.filesChanged(described) {
				return
			}
			m.refresh(ctx)
			continue
		case <-m.news:
		case <-after:
		case <-ctx.Done():
		}
		return
	}
}

// connectOrRotate engages the member as described: by new credentials for the engagement that there is, if that is all
// that changed, or else by a new engagement.
func (m *member) connectOrRotate(ctx context.Context, described Member) error {
	if e := m.rotatable(described); e != nil {
		if err := m.rotate(ctx, described, e); !errors.Is(err, errNotInPlace) {
			return err
		}
	}
	return m.connect(ctx, described)
}

// connect makes an engagement of the description and puts it in the place of the one before. That one goes on if
// connecting does not work.
func (m *member) connect(ctx context.Context, described Member) error {
	attempt, interrupt := context.WithCancel(ctx)
	defer interrupt()
	if !m.begin(described, interrupt) {
		return errOutdated
	}
	m.useServer(described)
	before := m.predecessor()
	before.keepLost()
	e, err := m.engage(attempt, ctx, described, before)
	if err != nil {
		before.dropLost()
		return m.failed(described, err)
	}
	e.syncBeside(attempt, before)
	if err := m.handOver(ctx, described, before, e); err != nil {
		before.dropLost()
		e.end(errReplaced)
		return errors.Join(err, e.drain(context.WithoutCancel(ctx))) // nobody has seen it, so nothing runs for it
	}
	e.openLegacies()
	return nil
}

// predecessor returns the engagement whose place another one is to take, or nil.
func (m *member) predecessor() *Engagement {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.engagement == nil || m.engagement.ctx.Err() != nil {
		return nil
	}
	return m.engagement
}

// engage waits for a place among those that connect, and connects.
func (m *member) engage(attempt, life context.Context, described Member, before *Engagement) (*Engagement, error) {
	leave, err := m.paced(attempt)
	if err != nil {
		return nil, err
	}
	defer leave()
	attempt, expire := context.WithTimeout(attempt, m.fleet.opts.ConnectTimeout)
	defer expire()
	return m.fleet.engage(attempt, life, described, m, before)
}

// paced waits for a place among those that connect. An attempt that is not the first needs none: pauses keep these apart, and
// servers that never answer are not to stand in the way of others for long.
func (m *member) paced(ctx context.Context) (leave func(), err error) {
	m.fleet.mu.Lock()
	first := m.attempts == 1
	m.fleet.mu.Unlock()
	if !first {
		return func() {}, nil
	}
	leave, err = m.fleet.pace.enter(ctx)
	if err != nil { // nothing was tried
		m.fleet.mu.Lock()
		m.attempts--
		m.fleet.mu.Unlock()
	}
	return leave, err
}

// useServer keeps the metrics of the server that is dialed for as long as the member is described by it, whether it is
// ever engaged or not.
func (m *member) useServer(described Member) {
	if described.Config == nil {
		return
	}
	before := m.forgetServer
	m.forgetServer = m.fleet.clientSeries.begin(m.fleet.usable(described))
	before()
}

// begin notes an attempt, unless the description is outdated.
func (m *member) begin(described Member, interrupt context.CancelFunc) bool {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.withdrawn || !sameAccess(described, m.described) {
		return false
	}
	m.interrupt = interrupt
	m.attempts++
	if m.engagement == nil {
		m.setStateLocked(Connecting, m.reason, m.message)
	}
	return true
}

// failed notes why an attempt did not work. It returns errOutdated if that is of no interest any more.
func (m *member) failed(described Member, err error) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.interrupt = func() {}
	if m.withdrawn || !sameAccess(described, m.described) {
		return errOutdated
	}
	if apierrors.IsUnauthorized(err) {
		wake(m.denied)
	}
	return m.failedLocked(err)
}

func (m *member) failedLocked(err error) error {
	if m.explainLocked(classify(err), message(err)) || m.attempts == 1 {
		m.log.Info("Cannot connect; trying again", "reason", classify(err), "error", message(err))
	}
	return err
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
	if now := (problem{reason, message}); now != m.problem {
		m.problem = now
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

// handOver publishes an engagement in the place of the one before. If that one is of another cluster, nothing of it may
// be left when the new one begins: neither a reconcile nor a request.
func (m *member) handOver(ctx context.Context, described Member, before, e *Engagement) error {
	if before != nil && before.identity != e.identity {
		if err := m.giveUp(described, before, e); err != nil {
			return err
		}
		m.awaitDrain(context.WithoutCancel(ctx), before)
		m.fleet.mu.Lock()
		m.engagement = nil
		m.fleet.mu.Unlock()
	}
	return m.engaged(described, e)
}

// giveUp ends an engagement since its cluster is no longer the member's, unless the description is outdated, or the other
// cluster is refused.
func (m *member) giveUp(described Member, before, e *Engagement) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.withdrawn || !sameAccess(described, m.described) {
		return errOutdated
	}
	if twins := m.fleet.identities.othersLocked(e); len(twins) > 0 && m.fleet.opts.RefuseDuplicates {
		return m.failedLocked(&duplicateError{of: twins[0]})
	}
	another := &anotherClusterError{known: before.identity, now: e.identity}
	m.log.Info("Disengaged", "why", another.Error())
	m.setStateLocked(Draining, ReasonAnotherCluster, message(another))
	m.fleet.notIdentifiedLocked(before)
	before.end(another)
	return nil
}

// engaged publishes an engagement, unless the description is outdated.
func (m *member) engaged(described Member, e *Engagement) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.interrupt = func() {}
	if m.withdrawn || !sameAccess(described, m.described) {
		return errOutdated
	}
	twins := m.fleet.identities.othersLocked(e)
	if len(twins) > 0 && m.fleet.opts.RefuseDuplicates {
		return m.failedLocked(&duplicateError{of: twins[0]})
	}
	before := m.engagement
	m.engagement, m.engagedAs, m.impostor = e, described, false
	m.measured.engagedLocked(e)
	m.log.Info("Engaged", "attempts", m.attempts, "identity", e.identity)
	m.attempts, m.problem = 0, problem{}
	m.setStateLocked(Ready, "", "")
	m.fleet.changedLocked(m.name) // a replaced engagement is news, although the state is the same
	if before != nil {
		m.fleet.notIdentifiedLocked(before)
		before.end(errReplaced)
		m.replaced.Go(func() { m.awaitDrain(context.Background(), before) })
	}
	m.fleet.identifiedLocked(e)
	if len(twins) > 0 {
		m.log.Info("Two members are the same cluster: its objects are reconciled once for each", "identity", e.identity, "other", twins[0])
	}
	return nil
}

// invalid notes that the provider cannot describe the member. An engagement goes on.
func (m *member) invalid(why error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.withdrawn {
		return
	}
	if m.engagement == nil {
		m.setStateLocked(Pending, m.reason, m.message)
	}
	if m.explainLocked(reasonInvalid(why), message(why)) {
		m.log.Info("The provider cannot describe the member", "error", message(why))
	}
}

// health notes what the probes of an engagement found. If another cluster answers, that is for an engagement of its own.
func (m *member) health(e *Engagement, state State, why error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.engagement != e || m.withdrawn || e.ctx.Err() != nil {
		return
	}
	if m.state != state || m.reason != classify(why) {
		m.log.Info("Health changed", "state", state, "reason", classify(why), "error", message(why))
	}
	m.setStateLocked(state, classify(why), message(why))
	switch {
	case state == Ready:
		m.impostor = false
	case errors.Is(why, ErrAnotherCluster) && !m.impostor:
		m.impostor = true
		wake(m.news)
	}
}

// drain ends what runs for the member and forgets it.
func (m *member) drain(ctx context.Context) {
	why := errRemoved
	m.fleet.mu.Lock()
	if !m.withdrawn {
		why = ErrStopped
		m.withdrawLocked()
	}
	e := m.engagement
	m.fleet.mu.Unlock()
	if e != nil {
		e.end(why)
		m.awaitDrain(context.WithoutCancel(ctx), e) // what is still running holds the member until it returns
	}
	m.replaced.Wait()
	m.forgetServer()

	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.log.Info("Disengaged", "why", why.Error())
	if e != nil {
		m.fleet.notIdentifiedLocked(e)
	}
	m.fleet.endedLocked(m)
}

func (m *member) setStateLocked(state State, reason, message string) {
	if m.state == state && m.reason == reason && m.message == message {
		return
	}
	if m.state != state {
		m.since = time.Now()
	}
	m.state, m.reason, m.message = state, reason, message
	m.fleet.changedLocked(m.name)
}

func (m *member) statusLocked() Status {
	s := Status{
		Name: m.name, Labels: maps.Clone(m.described.Labels), State: m.state,
		Reason: m.reason, Message: m.message, Since: m.since, Attempts: m.attempts, Expires: m.described.Expires,
	}
	if m.engagement == nil {
		return s
	}
	s.Identity, s.Duplicates = m.engagement.identity, m.fleet.identities.othersLocked(m.engagement)
	s.NotSynced = m.engagement.kinds.summary()
	switch {
	case s.Reason != "":
	case m.problem.reason != "":
		s.Reason, s.Message = m.problem.reason, m.problem.message
	case s.NotSynced != nil:
		s.Reason, s.Message = ReasonNotSynced, notSyncedMessage(s.NotSynced)
	}
	return s
}
