package dependents

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestRolloutsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Rollout{
		{MaxParallel: intstr.FromInt32(-1)}, {MaxParallel: intstr.FromString("some")}, {MaxParallel: intstr.FromString("-3%")}, {HaltAfter: -1},
	} {
		if r.validate() == nil {
			t.Errorf("%+v is allowed", r)
		}
	}
	if err := (Rollout{}).validate(); err != nil {
		t.Error(err)
	}
}

// TestARolloutIsFollowedWhileItIsLimited, and what was noted about it counts once that is so.
func TestARolloutIsFollowedWhileItIsLimited(t *testing.T) {
	t.Parallel()
	p := Rollout{HaltAfter: 1}.next(nil, hash{1})
	if p.Recall(record.NewFailures(hash{1}.String(), []mcreconcile.ClusterName{"a"})); !p.HasFailed("a") {
		t.Error("what was noted does not count")
	}
	if same := (Rollout{HaltAfter: 2}).next(p, hash{1}); same != p || !same.HasFailed("a") {
		t.Error("with another policy, it begins anew")
	}
	if (Rollout{}).next(p, hash{1}) != nil {
		t.Error("there is progress where nothing is limited")
	}
}
