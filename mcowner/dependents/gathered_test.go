package dependents

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWarningsOfOneReasonAreGathered: what an owner desires may be refused in ten thousand clusters at once. Each text is told, of a few
// texts at least, and in how many clusters it holds.
func TestWarningsOfOneReasonAreGathered(t *testing.T) {
	t.Parallel()
	const clusters = 10_000
	cases := map[string]struct {
		refused func(i int, name mcreconcile.ClusterName) error
		want    int
		notes   []string
	}{
		"the same": {
			refused: func(int, mcreconcile.ClusterName) error { return errors.New("too large") },
			want:    1, notes: []string{"In 10000 clusters: too large"},
		},
		"the same but for the cluster": {
			refused: func(_ int, name mcreconcile.ClusterName) error {
				return fmt.Errorf("applying to cluster %q: too large", name)
			},
			want: 1, notes: []string{`In 10000 clusters: applying to cluster "cluster-0": too large`},
		},
		"the same but for the port": {
			refused: func(i int, _ mcreconcile.ClusterName) error {
				return fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:443: reset", i)
			},
			want: 1, notes: []string{"In 10000 clusters: read tcp 10.0.0.1:0->10.0.0.2:443: reset"},
		},
		"one apart": {
			refused: func(i int, _ mcreconcile.ClusterName) error {
				if i == 5000 {
					return errors.New("no room")
				}
				return errors.New("too large")
			},
			want: 2, notes: []string{"In 9999 clusters: too large", "no room"},
		},
		"each another": {
			refused: func(i int, _ mcreconcile.ClusterName) error { return fmt.Errorf("quota %d is used up", i) },
			want:    fewEvents + 1, notes: []string{"quota 0 is used up", "quota 19 is used up", "Failed in 9980 clusters more, with other texts"},
		},
		"of two reasons": {
			refused: func(i int, name mcreconcile.ClusterName) error {
				if i%2 == 0 {
					return &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: name}}
				}
				return errors.New("too large")
			},
			want: 2, notes: []string{"In 5000 clusters: too large", fmt.Sprintf(`In 5000 clusters: cluster "cluster-0": %v`, fleet.ErrNotReady)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwnerState(mcreconcile.Request{}, "1")
			for i := range clusters {
				name := mcreconcile.ClusterName(fmt.Sprint("cluster-", i))
				o.tell(name, tc.refused(i, name))
			}
			few := gathered(o.events)
			notes, about := make([]string, 0, len(few)), map[string]bool{}
			for _, e := range few {
				notes = append(notes, e.note)
				about[e.reason+" "+e.about.Name] = true
			}
			if len(notes) != tc.want || len(about) != tc.want {
				t.Errorf("%d events, about %d things, want %d:\n%s", len(notes), len(about), tc.want, strings.Join(notes, "\n"))
			}
			for _, want := range tc.notes {
				if !strings.Contains("\n"+strings.Join(notes, "\n")+"\n", "\n"+want+"\n") {
					t.Errorf("nothing says %q, but:\n%s", want, strings.Join(notes, "\n"))
				}
			}
		})
	}
}

// TestFewWarningsAreToldOneByOne, each about its cluster.
func TestFewWarningsAreToldOneByOne(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	for i := range fewEvents {
		o.tell(mcreconcile.ClusterName(fmt.Sprint("cluster-", i)), errors.New("too large"))
	}
	about := map[string]bool{}
	for _, e := range gathered(o.events) {
		about[e.about.Name] = e.note == "too large"
	}
	if len(about) != fewEvents || !about["cluster-0"] {
		t.Errorf("they are about %v", about)
	}
}
