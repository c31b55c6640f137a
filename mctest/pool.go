package mctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// cleanTimeout bounds the cleaning of one control plane, which takes seconds where many tests run at once. One that takes
// longer is thrown away.
const cleanTimeout = time.Minute

// Pool shares control planes among the tests of a package: each belongs to one test at a time, and looks new to the
// next. The zero value is an empty pool. Its methods are safe for concurrent use.
type Pool struct {
	mu      sync.Mutex // guards what follows; nothing is started or cleaned while it is held
	starter *starter
	idle    []*server

	recorded ledger

	share  sync.Once // sets what follows
	shared *ControlPlane
	broken error // why there is no shared one
}

// Run runs the tests of a package, ends the control planes that they have shared, and returns the code to exit with. It
// is called by TestMain, with its argument. It says which rights are too much, see [ControlPlane.RecordRights].
func (p *Pool) Run(m interface{ Run() int }) (code int) {
	defer func() {
		if err := p.close(); err != nil {
			fmt.Fprintln(os.Stderr, "mctest: ending the shared control planes:", err)
			code = max(code, 1)
		}
	}()
	code = m.Run()
	if err := p.recorded.settle(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, "mctest:", err)
		code = max(code, 1)
	}
	return code
}

// Start returns a fleet of control planes that look new: such as tests before have given back, and new ones where these
// do not suffice. They go back to the pool at the end of the test, after the clean-up functions that the test registers
// from now on.
//
// What the test has left in them is removed then: objects, whatever their finalizers, CRDs, and rights. A control plane
// is thrown away if it is stopped, if it cannot be cleaned, or if something that every new one has was changed, such as
// the namespace "default". A test may stop, freeze and restart what it was given.
func (p *Pool) Start(tb testing.TB, o Options) *Fleet {
	tb.Helper()
	f, err := newFleet(tb.Context(), lease{pool: p, tb: tb}, o)
	must(tb, err)
	tb.Cleanup(func() { mustClose(tb, f) })
	return f
}

// Share returns a control plane that other tests use at the same time: always the same one, with what the first of them
// asks for, and nobody cleans it. It is for tests that keep to namespaces of their own, and neither stop nor freeze it.
func (p *Pool) Share(tb testing.TB, o Options) *ControlPlane {
	tb.Helper()
	p.share.Do(func() { p.shared, p.broken = startControlPlane(tb.Context(), lease{pool: p, tb: tb}, "shared", o) })
	must(tb, p.broken)
	return p.shared
}

// lease is the pool as one test sees it.
type lease struct {
	pool *Pool
	tb   testing.TB
}

// take takes an idle server, or starts one.
func (l lease) take(ctx context.Context) (*server, error) {
	idle, starter, err := l.pool.takeIdle(ctx)
	if idle != nil || err != nil {
		return idle, err
	}
	s, err := starter.take(ctx)
	if err != nil {
		return nil, err
	}
	if s.cleaner, err = newCleaner(ctx, s.config, newStorage(s.env.ControlPlane.Etcd.URL.String())); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// giveBack keeps the server for other tests, or throws it away.
func (l lease) giveBack(s *server) error {
	if err := s.reset(); err != nil {
		l.tb.Logf("mctest: a control plane is thrown away: %v", err)
		return s.close()
	}
	l.pool.putIdle(s)
	return nil
}

func (l lease) ledger() *ledger { return &l.pool.recorded }

// takeIdle returns an idle server or, if there is none, the starter.
func (p *Pool) takeIdle(ctx context.Context) (*server, *starter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s, nil, nil
	}
	var err error
	if p.starter == nil {
		p.starter, err = newStarter(ctx)
	}
	return nil, p.starter, err
}

func (p *Pool) putIdle(s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

func (p *Pool) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	if p.shared != nil {
		idle = append(idle, p.shared.server)
	}

	var group errgroup.Group
	for _, s := range idle {
		group.Go(s.close)
	}
	return group.Wait()
}
