package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// spread is an owner, a ConfigMap of the local cluster, with dependents of five kinds in each target.
type spread struct {
	cp       *mctest.ControlPlane
	targets  int
	virtual  bool            // targets are members of the provider of namespaces
	more     []client.Object // kinds of which there are no dependents
	requests *counter
	swept    int64 // how many lists there will have been once all kinds were listed in all members

	mu      sync.Mutex // guards what follows
	is      state      // that all targets are to have
	reached chan struct{}
}

// dependentsTable answers: what does one owner with many targets cost, at first, when something changes, and when nothing does?
func dependentsTable(ctx context.Context) error {
	f, err := hubOfSlices(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, of := range []struct {
		targets int
		virtual bool
	}{{*dependentsTargets, false}, {*dependentsNamespaces, true}} {
		if of.targets == 0 {
			continue
		}
		s := &spread{cp: f.Local, targets: of.targets, virtual: of.virtual, requests: &counter{}}
		if err := s.table(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hubOfSlices starts a local cluster in which owners may have slices.
func hubOfSlices(ctx context.Context) (*mctest.Fleet, error) {
	root, err := moduleFolder(ctx)
	if err != nil {
		return nil, err
	}
	return mctest.New(ctx, mctest.Options{CRDPaths: []string{filepath.Join(root, "mcowner/dependents/v1alpha1/crd.yaml")}})
}

const (
	benchOwner  = "owner"
	targetLabel = "bench.fleet-runtime.dev/target"
	versionKey  = "version"
	noteKey     = "note"

	oneKind = "one field of one kind changed"
)

// state is what the owner says: a version that all its dependents have, and a note that those of one kind have.
type state struct{ version, note string }

func (s state) data() map[string]string {
	return map[string]string{versionKey: s.version, noteKey: s.note}
}

func (s *spread) target(i int) string { return fmt.Sprintf("target-%t-%04d", s.virtual, i) }

func (s *spread) table(ctx context.Context) error {
	what := "members with caches of their own"
	if s.virtual {
		what = "members of the provider of namespaces"
	}
	t := table{
		title:  fmt.Sprintf("Dependents: one owner with 5 objects in each of %d %s", s.targets, what),
		header: []string{"", "until done", "writes in members", "writes in the hub", "reads", "lists of the sweep", "probes", headerCPU, "heap after"},
	}
	if err := s.createTargets(ctx); err != nil {
		return err
	}
	stop, err := s.start(ctx)
	if err != nil {
		return err
	}
	owner := configMap(metav1.NamespaceDefault, benchOwner)
	owner.Labels = map[string]string{"virtual": strconv.FormatBool(s.virtual)}
	steps := []struct {
		name string
		to   state
	}{
		{"first rollout", state{"1", "1"}},
		{"one field of all kinds changed", state{"2", "1"}},
		{oneKind, state{"2", "2"}},
	}
	for i, step := range steps {
		do := func() error { return s.change(ctx, owner, step.to) }
		if i == 0 {
			do = func() error { owner.Data = step.to.data(); return s.cp.Client().Create(ctx, owner) }
		}
		if err := s.step(ctx, &t, step.name, step.to, do); err != nil {
			return errors.Join(err, stop())
		}
	}
	if err := s.drift(ctx, &t); err != nil {
		return errors.Join(err, stop())
	}
	if err := s.quiet(ctx, &t); err != nil {
		return errors.Join(err, stop())
	}
	if err := stop(); err != nil {
		return err
	}
	err = s.step(ctx, &t, "restart", steps[len(steps)-1].to, func() error { stop, err = s.start(ctx); return err })
	if err != nil {
		return err
	}
	if err := s.cp.Client().Delete(ctx, owner); err != nil {
		return errors.Join(err, stop())
	}
	for err == nil { // its dependents go before it
		err = s.cp.Client().Get(ctx, client.ObjectKeyFromObject(owner), owner)
		<-time.After(100 * time.Millisecond)
	}
	t.print()
	s.compare(t)
	return stop()
}

func (s *spread) createTargets(ctx context.Context) error {
	progressf("creating %d namespaces", s.targets)
	return each(ctx, s.targets, func(ctx context.Context, i int) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.target(i), Labels: map[string]string{targetLabel: ""}}}
		return client.IgnoreAlreadyExists(s.cp.Client().Create(ctx, ns))
	})
}

// compare prints what the shape of Karmada would write in the hub: an object for each object and cluster.
func (s *spread) compare(t table) {
	objects := 5 * s.targets
	works := table{
		title:  "Writes in the hub for that, beside those in the members, which are the same: what is desired, where it is, and how it is",
		header: []string{"", t.header[3], "objects in the hub for each object and cluster, written and reported (computed)"},
	}
	for _, row := range t.rows[:3] {
		changed := objects
		if row[0] == oneKind {
			changed = s.targets
		}
		works.add(row[0], row[3], strconv.Itoa(2*changed))
	}
	works.print()
}

func (s *spread) change(ctx context.Context, owner *corev1.ConfigMap, to state) error {
	patch := fmt.Appendf(nil, `{"data":{"version":%q,"note":%q}}`, to.version, to.note)
	return s.cp.Client().Patch(ctx, owner, client.RawPatch("application/merge-patch+json", patch))
}

// step measures until all targets are as they are to be.
func (s *spread) step(ctx context.Context, t *table, name string, to state, do func() error) error {
	progressf("%s", name)
	s.mu.Lock()
	s.is, s.reached = to, make(chan struct{})
	reached := s.reached
	s.mu.Unlock()
	return s.measured(ctx, t, name, func() error {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-reached:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Minute):
			return errors.New("not all targets were reached within ten minutes")
		}
	})
}

// measured measures how long something takes, and what was sent until nothing more was: events and slices are written a little later.
func (s *spread) measured(ctx context.Context, t *table, name string, do func() error) error {
	cpu, err := measure.UsedCPU()
	if err != nil {
		return err
	}
	before, began := s.requests.now(), time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began)
	if err := s.rests(ctx, 3*time.Second); err != nil {
		return err
	}
	sent := s.requests.now().since(before)
	after, err := measure.UsedCPU()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	row := []string{name, took.Round(time.Millisecond).String()}
	for _, n := range []int64{sent.members, sent.hub, sent.reads, sent.lists, sent.probes} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	t.add(append(row, (after - cpu).Round(time.Millisecond).String(), fmt.Sprintf("%d MB", stats.HeapAlloc>>20))...)
	return err
}

// drift changes one object, and measures until it is changed back.
func (s *spread) drift(ctx context.Context, t *table) error {
	key := client.ObjectKey{Namespace: s.target(s.targets / 2), Name: benchOwner}
	return s.measured(ctx, t, "one object drifted", func() error {
		cm := configMap(key.Namespace, key.Name)
		if err := s.cp.Client().Patch(ctx, cm, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"version":"drifted"}}`))); err != nil {
			return err
		}
		for cm.Data[versionKey] == "drifted" {
			if err := s.cp.Client().Get(ctx, key, cm); err != nil {
				return err
			}
		}
		return nil
	})
}

// quiet measures while nothing is to be done: events are written late, and after a start the sweep lists each kind of each member.
func (s *spread) quiet(ctx context.Context, t *table) error {
	if err := s.firstSweep(ctx); err != nil {
		return err
	}
	progressf("measuring a minute of nothing")
	return s.measured(ctx, t, "a minute of nothing", func() error {
		stop, err := s.profile()
		if err != nil {
			return err
		}
		defer stop()
		return pause(ctx, time.Minute)
	})
}

// firstSweep waits until each kind was listed in each member, and nothing is asked for any more.
func (s *spread) firstSweep(ctx context.Context) error {
	progressf("waiting for the first sweep")
	for s.requests.lists.Load() < s.swept {
		if err := s.rests(ctx, 5*time.Second); err != nil {
			return err
		}
	}
	return s.rests(ctx, 5*time.Second)
}

// rests waits until nothing was sent for so long but for probes, and for the lists of the sweep, which goes on by itself.
func (s *spread) rests(ctx context.Context, long time.Duration) error {
	for before := (counts{members: -1}); ; {
		now := s.requests.now()
		now.probes, now.lists = 0, 0
		if before == now {
			return nil
		}
		before = now
		if err := pause(ctx, long); err != nil {
			return err
		}
	}
}

// profile writes a CPU profile until stop is called, if the user wants one.
func (s *spread) profile() (stop func(), err error) {
	if *profiles == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(*profiles, s.target(s.targets)+".cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // what is missing shows when it is read
	}, nil
}
