package sharding

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func TestStatusSaysWhoOwnsWhat(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b", func(o *Options) { o.Capacity = 3 })
	s.becomesShared()
	var status Status
	stage.Eventually(t, "nothing moves any more", func() bool {
		status = a.replica.Status()
		return len(status.Replicas) == 2 && len(status.Moves) == 0 && status.MaxOverMean <= 1.35 && status.Replicas[0].Weight > 0
	})
	if status.State != Active || status.Session != a.session() || status.Replica != "a" || status.ID != "test" || status.Buckets != 64 ||
		status.ValidSeconds <= 0 || status.MembersWithoutOwner != 0 {
		t.Errorf("%+v", status)
	}
	for _, one := range status.Replicas {
		want := len(a.holds())
		if one.Replica == "b" {
			want = len(b.holds())
		}
		if !one.Live || one.Members != want || one.Weight != float64(want) || !strings.HasPrefix(one.Session, one.Replica+"-") {
			t.Errorf("%+v, which holds %d members", one, want)
		}
	}
	if _, err := json.Marshal(status); err != nil {
		t.Error(err)
	}
	a.faults.all(freeze)
	stage.Eventually(t, "the replica says that it is suspended, and since when", func() bool {
		status = a.replica.Status()
		return status.State == Suspended && !status.SuspendedSince.IsZero() && status.ValidSeconds == 0
	})
	stage.Eventually(t, "the other takes over, of which the status tells", func() bool {
		return len(b.replica.Status().Replicas) == 1 && b.replica.Status().MembersWithoutOwner == 0
	})
}

func TestMetricsShowWhatTheStatusHas(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	b := s.start("b")
	s.becomesShared(a, b)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(a.replica)); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	stage.Eventually(t, "metrics show that members have moved", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				name := strings.TrimPrefix(family.GetName(), metricPrefix)
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return got["moves_total overloaded"] > 0 && got["hand_over_seconds"] > 0
	})
	if stuck, told := got["stuck"]; !told || stuck != 0 {
		t.Errorf("stuck is %v, told: %t", stuck, told)
	}
	if got["owned_members"] < 5 || got["owned_members"] != got["owned_weight"] || got["replicas"] != 2 || got["session_valid_seconds"] <= 0 ||
		got["members_without_owner"] != 0 || got["moves_total unowned"] != 64 || got["max_over_mean"] < 1 {
		t.Errorf("%v", got)
	}
}

// A table that a newer version wrote stops what an older one decides, and that is what an alert is about.
func TestAMetricShowsThatNothingCanBeDecided(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	if got := gaugeOf(t, r, "stuck"); got != 0 {
		t.Errorf("stuck is %v while nothing is wrong", got)
	}
	r.stuck(errProblem("test.table", errRefused))
	if got := gaugeOf(t, r, "stuck"); got != 1 {
		t.Errorf("stuck is %v while the table cannot be read", got)
	}
}

// gaugeOf returns what a metric of a replica shows.
func gaugeOf(t *testing.T, r *Replica, name string) (value float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(r)); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == metricPrefix+name {
			value = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return value
}

// lines are those of a log.
type lines struct {
	mu  sync.Mutex // guards what follows
	all []string
}

func (l *lines) logger() func(*Options) {
	return func(o *Options) {
		o.Logger = funcr.New(func(_, args string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.all = append(l.all, args)
		}, funcr.Options{})
	}
}

func (l *lines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestMissingRightsAreSaidOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, 5)
	onLeases := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: verbs}
	}
	user := "user-of-" + s.namespace
	s.config = s.cp.AddUser(t, user)
	log := &lines{}
	a := s.start("a", log.logger())
	stage.Eventually(t, "the status says that a right is missing", func() bool {
		return strings.Contains(a.replica.Status().Problem, "forbidden")
	})
	s.cp.AddUser(t, user, onLeases("get", "list", "watch", "create", "update", "delete"))
	s.becomesShared(a)
	stage.Eventually(t, "the log says that events are not recorded", func() bool { return log.with("Events are not recorded") == 1 })
	if n := log.with("Members cannot be shared now"); n != 1 {
		t.Errorf("the missing right is told %d times", n)
	}
}

func TestNothingIsLeftOfAReplicaThatHasEnded(t *testing.T) {
	cp := pool.Share(t, mctest.Options{})
	before := goleak.IgnoreCurrent()
	s := newSceneIn(t, cp, 10)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	a.stop()
	s.becomesShared(b)
	b.stop()
	stage.Eventually(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
	if err := a.replica.Run(t.Context(), nil, nil); err == nil {
		t.Error("a replica runs twice")
	}
}

// With the default lease, three replicas with members to share write once a second together, whatever else there is.
func TestReplicasThatHaveNothingToDoRenewAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, 300)
	s.lease = 15 * time.Second
	settle := func(o *Options) { o.Settle = 100 * time.Millisecond }
	all := []*actor{s.start("a", settle), s.start("b", settle), s.start("c", settle)}
	s.becomesShared(all...)
	stage.Eventually(t, "nothing moves any more", func() bool {
		status := all[0].replica.Status()
		return len(status.Moves) == 0 && status.MaxOverMean <= 1.1
	})
	written := func() (n int) {
		for _, a := range all {
			n += a.faults.written()
		}
		return n
	}
	generation := all[0].replica.Status().Generation
	before, begun := written(), time.Now()
	stage.Eventually(t, "each has renewed several times", func() bool { return written()-before >= 9 })
	took := time.Since(begun)
	t.Logf("%.2f writes/s of three replicas with %d members", float64(written()-before)/took.Seconds(), 300)
	if took < 2*all[0].replica.times.renew {
		t.Errorf("9 writes within %s, want no more than one each in %s", took, all[0].replica.times.renew)
	}
	if now := all[0].replica.Status().Generation; now != generation {
		t.Errorf("the table was written %d times meanwhile", now-generation)
	}
}

// client-go does not wait for a list that it has given up: the next one may begin before that has failed.
func TestListsThatFailSideBySideAreSaidOnce(t *testing.T) {
	t.Parallel()
	r, _ := seated(t, systemClock{time.Now()})
	log := &lines{}
	opts := Options{}
	log.logger()(&opts)
	r.log = opts.Logger
	var lists sync.WaitGroup
	for range 4 {
		lists.Go(func() { _ = r.watched(t.Context(), errRefused) })
	}
	lists.Wait()
	if n := log.with("Cannot watch the Leases"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	_ = r.watched(t.Context(), nil)
	if _ = r.watched(t.Context(), errRefused); log.with("Cannot watch the Leases") != 2 {
		t.Error("another failure is not told")
	}
}
