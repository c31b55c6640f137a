package dependents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestARightIsMissedSinceItWasFirst, in whatever turn others write into several namespaces, until it is there, or was not missed for long.
func TestARightIsMissedSinceItWasFirst(t *testing.T) {
	t.Parallel()
	o, at := newOwnerState(mcreconcile.Request{}, "1"), remote.Session{ID: mcowner.ByName("one")}
	named := func(namespace string) dependent {
		return dependent{obj: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}}
	}
	one, two := whereDenied(named("one")), whereDenied(named("two"))
	first := o.deniedSince(at, one)
	o.deniedSince(at, two)
	if again := o.deniedSince(at, one); !again.Equal(first) {
		t.Errorf("it is missed since %s, then since %s", first, again)
	}
	o.parts["one"].denied[one] = denial{since: first.Add(-time.Hour), last: time.Now().Add(-denialLasts - time.Second)}
	if later := o.deniedSince(at, one); later.Before(first) {
		t.Errorf("it was not missed for long, and is missed since %s", later)
	}
	o.parts["one"].denied[two] = denial{since: first.Add(-time.Hour), last: time.Now()}
	o.notDenied(at, []dependent{named("other"), named("two")})
	if since := o.deniedSince(at, two); since.Before(first) {
		t.Errorf("it was there, and is missed since %s", since)
	}
}
