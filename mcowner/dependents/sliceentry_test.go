package dependents

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhereThereMayBeDependentsIsWrittenAtOnce, and the rest waits after a write.
func TestWhereThereMayBeDependentsIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	ref := mcowner.Reference{UID: "1", Namespace: "ns"}
	owner := func(r record.Record) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
		testKeys.Write(cm, r, true)
		return cm
	}
	sliced, sites := &record.Slices{Namespace: "ns"}, []record.Site{{Name: "member", Identity: "1"}}
	for what, c := range map[string]struct {
		owner  *corev1.ConfigMap
		now    []record.Site
		before time.Duration
		want   bool
	}{
		"nothing new":                          {owner(record.Record{Slices: sliced}), nil, 0, false},
		"nothing new for a while":              {owner(record.Record{Slices: sliced}), nil, 2 * sliceDelay, true},
		"a cluster more":                       {owner(record.Record{Slices: sliced}), sites, 0, true},
		"an owner with annotations":            {owner(record.Record{Sites: sites, Slices: sliced}), sites, 0, true},
		"an owner that says nothing of slices": {owner(record.Record{}), nil, 0, true},
	} {
		a := &accounting{
			engine: &engine{keys: testKeys}, o: newOwnerState(mcreconcile.Request{}), plan: &plan{owner: c.owner, ref: ref}, record: record.Record{Sites: c.now},
		}
		a.o.known.written = time.Now().Add(-c.before)
		if got := a.isSliceDue(record.NewBook(ref, "ns")); got != c.want {
			t.Errorf("%s is due: %t", what, got)
		}
		if !c.want && a.later <= 0 {
			t.Errorf("%s is never written", what)
		}
	}
}

// TestSlicesDoNotSayWhatChangesAllTheTime: how often it was tried to reach a cluster, and whether a dependent was as desired before.
func TestSlicesDoNotSayWhatChangesAllTheTime(t *testing.T) {
	t.Parallel()
	away := func(message string, since time.Time) error {
		return &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: "member", State: "Unreachable", Reason: "Timeout", Message: message, Since: since}}
	}
	if one, other := sliceText(away("attempt 1", time.Unix(1, 0))), sliceText(away("attempt 2", time.Unix(2, 0))); one != other || one == "" {
		t.Errorf("a cluster that is away is %q, and then %q", one, other)
	}
	result := func(state State, err error, since int64) Result {
		return Result{Cluster: "member", Objects: []ObjectResult{{State: state, Err: err, Since: time.Unix(since, 0)}}}
	}
	first := entryOf(result(Applied, nil, 1)).Objects[0]
	for _, state := range []State{Unchanged, Drifted} {
		if o := entryOf(result(state, nil, 2)).Objects[0]; o != first {
			t.Errorf("a dependent that is as desired is %+v, and then %+v", first, o)
		}
	}
	if o := entryOf(result(Failed, errors.New("quota exceeded"), 2)).Objects[0]; o.State != "Failed" || o.Error != "quota exceeded" || !o.Since.Time.Equal(time.Unix(2, 0)) {
		t.Errorf("a dependent that has failed is %+v", o)
	}
}
