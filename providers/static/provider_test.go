package static_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{
		Fixed: "the list is fixed",
		New: func(*testing.T) providertest.Source {
			var list static.Provider
			return providertest.Source{
				Provider: func() fleet.Provider { return list },
				Set: func(_ *testing.T, d providertest.Description) {
					list = append(list, fleet.Member{Name: fleet.ClusterName(d.Name), Config: d.Config, Labels: d.Labels})
				},
			}
		},
	})
}

// reports is a [fleet.Members] to which a provider reports members and withdraws none.
type reports chan fleet.Member

func (r reports) Set(m fleet.Member) error {
	r <- m
	return nil
}

func (reports) Leave(fleet.Member) (left <-chan struct{}, err error) { panic("nothing is to leave") }

func (reports) Remove(fleet.ClusterName) (drained <-chan struct{}) { panic("nothing is to be removed") }

func (reports) SetProblem(fleet.Problem) {}

func TestAListThatCannotBeUsedIsAnErrorAndNothingIsReported(t *testing.T) {
	good := fleet.Member{Name: "good", Config: &rest.Config{}}
	for name, tc := range map[string]struct {
		list static.Provider
		want []string
	}{
		"NoName":   {static.Provider{good, {Config: &rest.Config{}}}, []string{"entry 1", "the empty name is the local cluster's"}},
		"NoConfig": {static.Provider{good, {Name: "bad"}}, []string{"entry 1", `"bad"`, "exactly one of Config, Load, Cluster and Err"}},
		"Twice":    {static.Provider{good, {Name: "other", Config: &rest.Config{}}, good}, []string{"entries 0 and 2", `"good"`}},
		"All":      {static.Provider{{Name: "a b"}, {}, good, good}, []string{"entry 0", "entry 1", "entries 2 and 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := make(reports, len(tc.list))
			ctx, end := context.WithCancel(t.Context())
			end() // what can work returns at once
			err := tc.list.Run(ctx, nil, r)
			if !errors.Is(err, fleet.ErrInvalidMember) {
				t.Fatalf("Run() = %v, want ErrInvalidMember", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Run() = %v, want %q in it", err, part)
				}
			}
			if len(r) > 0 {
				t.Errorf("%d members were reported", len(r))
			}
		})
	}
}

func TestAClusterThatExistsIsReportedAsItIs(t *testing.T) {
	made := &struct{ cluster.Cluster }{}
	broken := errors.New("the cluster could not be made")
	r := make(reports, 2)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- static.Provider{{Name: "made", Cluster: made}, {Name: "broken", Err: broken}}.Run(ctx, nil, r)
	}()
	if m := <-r; m.Cluster != made {
		t.Errorf("%q is reported with %v", m.Name, m.Cluster)
	}
	if m := <-r; !errors.Is(m.Err, broken) {
		t.Errorf("%q is reported with %v", m.Name, m.Err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// refusing is a [fleet.Members] that takes nothing.
type refusing struct{ with error }

func (r refusing) Set(fleet.Member) error { return r.with }

func (r refusing) Leave(fleet.Member) (left <-chan struct{}, err error) { return nil, r.with }

func (refusing) Remove(fleet.ClusterName) (drained <-chan struct{}) { return nil }

func (refusing) SetProblem(fleet.Problem) {}

func TestARefusalIsLoggedButTheEndOfTheFleetIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		want    int // lines
	}{
		"Refused": {fmt.Errorf("%w: another has the name", fleet.ErrInvalidMember), 2},
		"Ended":   {fmt.Errorf("setting: %w", fleet.ErrStopped), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			ctx, stop := context.WithCancel(logf.IntoContext(t.Context(), logger))
			stop()
			one, two := fleet.Member{Name: "one", Config: &rest.Config{}}, fleet.Member{Name: "two", Config: &rest.Config{}}
			if err := (static.Provider{one, two}).Run(ctx, nil, refusing{tc.refusal}); err != nil {
				t.Errorf("Run() = %v", err)
			}
			if len(lines) != tc.want {
				t.Errorf("there are %d lines in the log, want %d:\n%s", len(lines), tc.want, strings.Join(lines, "\n"))
			}
		})
	}
}
