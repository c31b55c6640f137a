package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// seriesOf returns the fleet's metrics that have a text in their labels: name{labels} to value, or "count sum".
func seriesOf(t *testing.T, with string) map[string]string {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "fleet_runtime_member") {
			continue
		}
		for _, metric := range family.GetMetric() {
			pairs := make([]string, 0, len(metric.GetLabel()))
			for _, l := range metric.GetLabel() {
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			labels := strings.Join(pairs, ",")
			value := fmt.Sprint(metric.GetGauge().GetValue() + metric.GetCounter().GetValue())
			if s := metric.GetSummary(); s != nil {
				value = fmt.Sprint(s.GetSampleCount(), s.GetSampleSum())
			}
			if strings.Contains(labels, with) {
				found[strings.TrimPrefix(family.GetName(), "fleet_runtime_")+"{"+labels+"}"] = value
			}
		}
	}
	return found
}

func TestMetricsOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "a", nil)
		<-time.After(2 * time.Second)
		join(t, f, "a")
		<-time.After(time.Minute)
		e := join(t, f, "a") // another cluster
		since := time.Now()
		e.tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
		e.tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
		e.tally.reconciled("things", outcomeOf(reconcile.Result{RequeueAfter: 1}, nil))
		e.tally.reconciled("others", outcomeOf(reconcile.Result{RequeueAfter: 1}, errors.New("broken")))
		for i := range 2 {
			probe := e.tally.timed(func(context.Context, http.RoundTripper) error {
				<-time.After(time.Duration(i+1) * time.Second)
				return errors.New("no answer")
			})
			_ = probe(t.Context(), nil)
		}
		got := seriesOf(t, "cluster=a")
		want := map[string]string{
			"member_state{cluster=a,state=Pending}":                               "0",
			"member_state{cluster=a,state=Connecting}":                            "0",
			"member_state{cluster=a,state=Ready}":                                 "1",
			"member_state{cluster=a,state=Unreachable}":                           "0",
			"member_state{cluster=a,state=Suspended}":                             "0",
			"member_state{cluster=a,state=Draining}":                              "0",
			"member_state{cluster=a,state=Drained}":                               "0",
			"member_state{cluster=a,state=NotOwned}":                              "0",
			"member_last_transition_timestamp_seconds{cluster=a}":                 fmt.Sprint(float64(since.Unix() - 60)),
			"member_time_to_ready_seconds{cluster=a}":                             "2",
			"member_probe_seconds{cluster=a}":                                     "2 3",
			"member_last_probe_seconds{cluster=a}":                                "2",
			"member_engagements_total{cluster=a}":                                 "2",
			"member_rotations_total{cluster=a}":                                   "0",
			"member_reconciles_total{cluster=a,controller=things,result=success}": "2",
			"member_reconciles_total{cluster=a,controller=things,result=requeue}": "1",
			"member_reconciles_total{cluster=a,controller=things,result=error}":   "0",
			"member_reconciles_total{cluster=a,controller=others,result=success}": "0",
			"member_reconciles_total{cluster=a,controller=others,result=requeue}": "0",
			"member_reconciles_total{cluster=a,controller=others,result=error}":   "1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("series of the member (-want, +got):\n%s", diff)
		}
	})
}

// TestWhatIsWrongWithAMemberIsInMetrics: the reason that its status has, and the kinds that are not synced.
func TestWhatIsWrongWithAMemberIsInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMemberSeries: 1})
		e := join(t, f, "a")
		other := join(t, f, "beyond")
		wrong := func() map[string]string {
			found := seriesOf(t, "")
			maps.DeleteFunc(found, func(series, _ string) bool {
				return !strings.HasPrefix(series, "member_reason") && !strings.HasPrefix(series, "member_not_synced")
			})
			return found
		}
		if got := wrong(); len(got) != 0 {
			t.Errorf("series of a member with which nothing is wrong: %v", got)
		}
		deployments := informer.Key{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}}
		lists := &retrying{key: deployments, kind: e.kinds.stateOf(deployments)}
		e.kinds.report(lists, listing, errNo)
		other.kinds.report(&retrying{key: deployments, kind: other.kinds.stateOf(deployments)}, listing, errNo)
		want := map[string]string{
			"member_reason{cluster=a,reason=NotSynced}":         "1",
			"member_not_synced{cluster=a,kind=Deployment.apps}": "1",
		}
		if diff := cmp.Diff(want, wrong()); diff != "" {
			t.Errorf("series (-want, +got):\n%s", diff)
		}
		e.kinds.report(lists, listing, nil)
		if got := wrong(); len(got) != 0 {
			t.Errorf("series after it works again: %v", got)
		}
	})
}

// TestTheEndOfCredentialsThatNobodyUsesIsNotInMetrics: some are renewed on demand alone, and an alert would fire for what people want.
func TestTheEndOfCredentialsThatNobodyUsesIsNotInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{})
		end := time.Now().Add(time.Hour)
		set(t, f, Member{Name: "a", Cluster: &existing{}, Expires: end})
		for _, c := range []struct {
			hold  Hold
			state State
			want  string
		}{
			{Hold{}, Ready, fmt.Sprint(float64(end.Unix()))},
			{Hold{Paused: true}, Ready, fmt.Sprint(float64(end.Unix()))},
			{Hold{Drained: true}, Drained, ""},
			{Hold{Leave: true}, Drained, ""},
			{Hold{}, Ready, fmt.Sprint(float64(end.Unix()))},
		} {
			h.set("a", c.hold)
			wantState(t, f, "a", c.state)
			if got := seriesOf(t, "cluster=a")["member_credentials_expiry_timestamp_seconds{cluster=a}"]; got != c.want {
				t.Errorf("%s, held by %+v: the credentials end at %q, want %q", c.state, c.hold, got, c.want)
			}
		}
	})
}

// TestSeriesAreGoneWithTheMemberAndTheFleet: a member leaves none behind, however often it comes and goes, and a fleet
// that ended has none.
func TestSeriesAreGoneWithTheMemberAndTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{MaxMemberSeries: 1})
		end := runs(t, f)
		for range 1000 {
			join(t, f, "a").tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
			<-f.remove("a")
		}
		want := map[string]string{
			"members{state=Pending}": "0", "members{state=Connecting}": "0", "members{state=Ready}": "0",
			"members{state=Unreachable}": "0", "members{state=Draining}": "0", "members{state=Suspended}": "0", "members{state=NotOwned}": "0",
			"members{state=Drained}": "0",
		}
		if diff := cmp.Diff(want, seriesOf(t, "")); diff != "" {
			t.Errorf("series of an empty fleet (-want, +got):\n%s", diff)
		}
		join(t, f, "a")
		if got := seriesOf(t, "")["member_engagements_total{cluster=a}"]; got != "1" {
			t.Errorf("a member that came back has %q engagements, want 1: the place of the one before is free", got)
		}
		end()
		if got := seriesOf(t, ""); len(got) != 0 {
			t.Errorf("series of a fleet that ended: %v", got)
		}
	})
}

// TestMembersBeyondTheLimitAreSummed: and the sums do not fall when one of them leaves.
func TestMembersBeyondTheLimitAreSummed(t *testing.T) {
	cases := map[string]struct {
		most int
		own  string
		sum  string
	}{
		"Some": {1, "1", "2"},
		"None": {-1, "", "3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := running(t, Options{MaxMemberSeries: tc.most})
				for _, member := range []ClusterName{"a", "b", "c"} {
					join(t, f, member).tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
				}
				<-f.remove("c")
				got := seriesOf(t, "")
				for series, want := range map[string]string{
					"member_reconciles_total{cluster=a,controller=things,result=success}":       tc.own,
					"member_reconciles_total{cluster=b,controller=things,result=success}":       "",
					"member_reconciles_total{cluster=(other),controller=things,result=success}": tc.sum,
					"member_engagements_total{cluster=(other)}":                                 tc.sum,
					"member_state{cluster=(other),state=Ready}":                                 "",
					"members{state=Ready}": "2",
				} {
					if got[series] != want {
						t.Errorf("%s = %q, want %q", series, got[series], want)
					}
				}
			})
		})
	}
}

func TestAMemberCanHaveTheNameOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMemberSeries: 1})
		for _, name := range []ClusterName{otherMembers, "a", "b"} {
			join(t, f, name)
		}
		if got := seriesOf(t, "")["member_engagements_total{cluster=(other)}"]; got != "2" {
			t.Errorf("engagements of the others: %q, want 2", got)
		}
	})
}

// TestOneFleetOfAProcessHasMetrics: the second neither fails nor takes them away at its end.
func TestOneFleetOfAProcessHasMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		join(t, running(t, Options{}), "a")
		second := New(Options{})
		end := runs(t, second)
		join(t, second, "b")
		end()
		if len(seriesOf(t, "cluster=a")) == 0 || len(seriesOf(t, "cluster=b")) != 0 {
			t.Errorf("series are %v, want those of a alone", seriesOf(t, ""))
		}
	})
}

func TestMetricsCanBeReadWhileMembersComeAndGo(t *testing.T) {
	f := running(t, Options{MaxMemberSeries: 2})
	var all sync.WaitGroup
	for _, name := range []ClusterName{"a", "b", "c", "d"} {
		all.Go(func() {
			for range 50 {
				if err := f.set(Member{Name: name, Cluster: &existing{}}); err != nil {
					t.Error(err)
				}
				if e, err := f.Engagement(name); err == nil {
					e.tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
				}
				<-f.remove(name)
			}
		})
	}
	for range 50 {
		seriesOf(t, "")
	}
	all.Wait()
}

func TestCountingAReconcileDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := join(t, running(t, Options{}), "a")
		e.tally.reconciled("things", outcomeOf(reconcile.Result{}, nil))
		if n := testing.AllocsPerRun(1000, func() { e.tally.reconciled("things", outcomeOf(reconcile.Result{}, nil)) }); n != 0 {
			t.Errorf("%v allocations for each reconcile", n)
		}
	})
}

// TestTotalsAreSums of what their members have.
func TestTotalsAreSums(t *testing.T) {
	var sum totals
	for range 2 {
		sum.add(totals{engagements: 1, rotations: 2, probes: probeTimes{count: 3, sum: time.Second}})
	}
	if sum.engagements != 2 || sum.rotations != 4 || sum.probes.count != 6 || sum.probes.sum != 2*time.Second {
		t.Errorf("the sum is %+v", sum)
	}
}
