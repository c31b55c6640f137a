package access

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

func newLines() *lines { return &lines{lines: map[client.ObjectKey]*line{}} }

func accessOf(name string, generation int64) *v1alpha1.ClusterAccess {
	return &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
}

// enterMany lets as many imports of an access in as there is room for, and returns what the first has that is not let in.
func enterMany(l *lines, a *v1alpha1.ClusterAccess, now time.Time) (in []*line, later time.Duration, err error) {
	for {
		var of *line
		if of, later, err = l.enter(a, now); of == nil {
			return in, later, err
		}
		in = append(in, of)
	}
}

// TestFewImportsOfAClusterAreWorkedOnAtOnce, and one alone while it fails.
func TestFewImportsOfAClusterAreWorkedOnAtOnce(t *testing.T) {
	t.Parallel()
	l, a, now := newLines(), accessOf("a", 1), time.Unix(1000, 0)
	in, later, err := enterMany(l, a, now)
	if len(in) != perCluster || later <= 0 || err != nil {
		t.Errorf("%d are let in, and the next one waits %s, and is told %v", len(in), later, err)
	}
	if in, _, _ := enterMany(l, accessOf("b", 1), now); len(in) != perCluster {
		t.Errorf("of another cluster %d are let in", len(in))
	}
	failed := errors.New("no answer")
	for _, of := range in { // as one
		l.leave(of, now, failed)
	}
	if in, later, err = enterMany(l, a, now); len(in) != 0 || later <= 0 || !errors.Is(err, failed) {
		t.Errorf("right after that %d are let in, and the next one waits %s, and is told %v", len(in), later, err)
	}
	of := l.lines[client.ObjectKeyFromObject(a)]
	first := of.next.Sub(now)
	if first >= 2*retry.First {
		t.Errorf("after %d failures at once, none is let in for %s", perCluster, first)
	}
	now = now.Add(first)
	if in, later, err = enterMany(l, a, now); len(in) != 1 || later <= 0 || !errors.Is(err, failed) {
		t.Errorf("then %d are let in, and the next one waits %s, and is told %v", len(in), later, err)
	}
	l.leave(in[0], now, failed)
	if second := of.next.Sub(now); second < 2*retry.First {
		t.Errorf("the pauses are %s and %s", first, second)
	}
	if in, _, err = enterMany(l, accessOf("a", 2), now); len(in) != perCluster || err != nil {
		t.Errorf("after the access was changed, %d are let in, and the next one is told %v", len(in), err)
	}
	l.leave(in[0], now, failed)
	if l.leaveUnasked(in[1]); !errors.Is(in[1].err, failed) {
		t.Error("where one has not asked the cluster, it counts as one that answers")
	}
	l.leave(in[2], now, nil)
	if again, _, err := enterMany(l, accessOf("a", 2), now); len(again) != 3 || err != nil {
		t.Errorf("once the cluster answers, %d are let in, and the next one is told %v", len(again), err)
	}
	if l.forget(client.ObjectKeyFromObject(a)); len(l.lines) != 1 {
		t.Errorf("%d clusters are known", len(l.lines))
	}
}
