package dependents

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatIsNotWantedIsForgotten: dependents whose names change all the time, and that go by themselves, leave nothing behind.
func TestWhatIsNotWantedIsForgotten(t *testing.T) {
	o := newMemory().of(mcreconcile.Request{})
	key := func(cluster mcreconcile.ClusterName, name string) dependentKey {
		return dependentKey{cluster: cluster, name: types.NamespacedName{Name: name}}
	}
	kept, dropped, elsewhere := key("one", "wanted"), key("one", "of-yesterday"), key("two", "of-yesterday")
	for _, k := range []dependentKey{kept, dropped, elsewhere} {
		o.remember(k, applied{})
	}
	o.keep("one", map[dependentKey]bool{kept: true})
	for k, want := range map[dependentKey]bool{kept: true, dropped: false, elsewhere: true} {
		if o.is(k, applied{}) != want {
			t.Errorf("%v is remembered: %t, want %t", k, !want, want)
		}
	}
}
