package mctest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// answerTimeout bounds the wait for answers to what an account has asked for, which nobody waits for any more.
const answerTimeout = 5 * time.Second

// updatePatience is how long tests wait for the use of rights that a manifest gives and, perhaps, need not give any more.
const updatePatience = 30 * time.Second

// Account is the identity of a program under test in a control plane. Its methods are safe for concurrent use.
type Account struct {
	rights declared
	cp     *ControlPlane
	config *rest.Config
	uid    types.UID

	mu      sync.Mutex // guards what follows
	log     auditLog
	pending map[string]rights.Right // what has no answer yet
	asked   map[rights.Right]bool
	// impersonates is whether it acts as other users.
	impersonates bool
	looked       time.Time // when somebody first looked for what is unused
}

// RecordRights returns an account that has the rights of a manifest, and no others. What it asks for is read from the audit log of
// the API server, so that it does not matter how it asks, and what the test asks for as an administrator does not count.
//
// A right that is missing fails the test at its end. Rights that are too much are told when all tests of the suite have passed:
// they fail [Pool.Run] for control planes of a [Pool], and the test of [Start] for those of that, in which subtests and specs add
// up. They are not told if flags choose tests. With MCTEST_RIGHTS=update in the environment, accounts may do everything, and the
// manifests are changed to what was needed, or written where there is none.
//
// It applies the manifest, and makes namespaces that it names and that are not there. It returns once the rights hold.
func (cp *ControlPlane) RecordRights(tb testing.TB, r Rights) *Account {
	tb.Helper()
	d, err := declare(r)
	must(tb, err)
	a := &Account{rights: d, cp: cp, log: auditLog{path: cp.server.audit}, pending: map[string]rights.Right{}, asked: map[rights.Right]bool{}}
	must(tb, a.log.skip())
	if err := a.prepare(tb.Context()); err != nil {
		tb.Fatalf("mctest: recording the rights of %s in %s: %v", r.File, cp.Name, err)
	}
	tb.Cleanup(func() {
		must(tb, a.complete())
		cp.ledger.add(a.rights, a.needs())
		if missing := a.missing(); len(missing) > 0 && !updatesRights() {
			tb.Errorf("mctest: %s lacks what the account asked for in %s, or has to have:\n%s\n%s", r.File, cp.Name, lines(missing), howToUpdate)
		}
	})
	return a
}

// Config returns a new copy of the way to reach the control plane as the account. [Kubeconfig] makes a kubeconfig of it.
func (a *Account) Config() *rest.Config { return rest.CopyConfig(a.config) }

// Asked returns what the account has asked for until now, each once and without names of objects, such as "list deployments.apps in
// default". What everybody may ask for is not in it.
func (a *Account) Asked(tb testing.TB) []string {
	tb.Helper()
	must(tb, a.read())
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := map[string]bool{}
	for r := range a.asked {
		r.Name = ""
		texts[r.String()] = true
	}
	return slices.Sorted(maps.Keys(texts))
}

// Unused returns what the manifest gives and the account has not needed until now. Tests wait until it is empty, where programs
// ask for something late. While manifests are changed, it is empty from half a minute after the first call: what is unused then is to go.
func (a *Account) Unused(tb testing.TB) []string {
	tb.Helper()
	must(tb, a.read())
	a.mu.Lock()
	if a.looked.IsZero() {
		a.looked = time.Now()
	}
	isLate := updatesRights() && time.Since(a.looked) > updatePatience
	a.mu.Unlock()
	if isLate {
		return nil
	}
	return a.rights.file.TooMuch(a.rights.demand(a.needs()))
}

func (a *Account) missing() []rights.Right {
	return a.rights.file.Missing(a.rights.demand(a.needs()))
}

// needs returns what was asked for, but what everybody may, and what is refused on purpose.
func (a *Account) needs() []rights.Right {
	a.mu.Lock()
	defer a.mu.Unlock()
	return rights.Missing(a.rights.refused, slices.Collect(maps.Keys(a.asked)))
}

// complete reads what the account has asked for, with the answers, if they come.
func (a *Account) complete() error {
	// The test has ended, and with it its context.
	err := wait.PollUntilContextTimeout(context.Background(), lookEvery, answerTimeout, true, func(context.Context) (bool, error) {
		err := a.read()
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.pending) == 0 || !a.cp.APIServer.running || a.cp.APIServer.frozen, err
	})
	if err != nil && !wait.Interrupted(err) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.impersonates { // otherwise it is not known who has asked
		a.askLocked(slices.Collect(maps.Values(a.pending))...)
	}
	return nil
}

// read reads what the account has asked for since it was read last.
func (a *Account) read() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	events, err := a.log.next()
	for _, e := range events {
		if e.User.UID == string(a.uid) {
			a.noteLocked(e)
		}
	}
	return err
}

// noteLocked notes one stage of a request. What it asks for is in the first: later ones name the object that was created, too.
func (a *Account) noteLocked(e auditEvent) {
	switch e.Stage {
	case requestReceived:
		// It is known later whom it acts as.
		if all := e.rights(); len(all) > 0 {
			a.pending[e.AuditID] = all[0]
		}
	case responseStarted, responseComplete, panicked:
		r, ok := a.pending[e.AuditID]
		delete(a.pending, e.AuditID)
		switch {
		case e.ImpersonatedUser != nil:
			a.impersonates = true
			a.askLocked(e.rights()...)
		case ok:
			a.askLocked(r)
			a.askLocked(entailed(r, e.code())...)
		}
	}
}

func (a *Account) askLocked(all ...rights.Right) {
	for _, r := range rights.Missing(everybodys, all) {
		a.asked[r] = true
	}
}
