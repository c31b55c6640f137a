package members

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// has is a cache with one Member, by whatever name.
type has struct {
	cache.Cache

	member *v1alpha1.Member
}

// Get implements client.Reader.
func (h has) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	h.member.DeepCopyInto(obj.(*v1alpha1.Member)) //nolint:forcetypeassert // Members are read
	return nil
}

// TestAMemberHoldsBackItsOwnClusterAlone: one can have the name that another cluster's has.
func TestAMemberHoldsBackItsOwnClusterAlone(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Member{Spec: v1alpha1.Spec{ClusterName: "west", Paused: true, Reason: "maintenance"}}
	s := specs{Cache: has{member: m}}
	if got := s.hold("west"); got != (fleet.Hold{Paused: true, Reason: "maintenance"}) {
		t.Errorf("it holds back its own cluster by %+v", got)
	}
	if got := s.hold("east"); got != (fleet.Hold{}) {
		t.Errorf("it holds back another cluster by %+v", got)
	}
	for name, want := range map[string]bool{"west": true, "east": false} {
		if m.Name = name; bearsItsName(m) != want {
			t.Errorf("the Member %s of the cluster west bears its name: %t", name, !want)
		}
	}
}
