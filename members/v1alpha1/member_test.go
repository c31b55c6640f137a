package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func newList() *v1alpha1.MemberList {
	return &v1alpha1.MemberList{
		ListMeta: metav1.ListMeta{RemainingItemCount: new(int64(1))},
		Items: []v1alpha1.Member{{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"key": "value"}},
			Spec:       v1alpha1.Spec{ClusterName: "a"},
			Status: v1alpha1.Status{
				Labels: map[string]string{"key": "value"}, Duplicates: []string{"b"}, NotSynced: []v1alpha1.NotSynced{{Kind: "a"}},
				Lease: &v1alpha1.Lease{Name: "a"}, Conditions: []metav1.Condition{{Type: "a"}},
			},
		}},
	}
}

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	t.Parallel()
	original := newList()
	changed := original.DeepCopy()
	if diff := cmp.Diff(original, changed); diff != "" {
		t.Fatalf("the copy is not equal (-original, +copy):\n%s", diff)
	}
	*changed.RemainingItemCount = 2
	m := &changed.Items[0]
	m.Labels["key"], m.Status.Labels["key"], m.Status.Duplicates[0] = "changed", "changed", "changed"
	m.Status.NotSynced[0].Kind, m.Status.Lease.Name, m.Status.Conditions[0].Type = "changed", "changed", "changed"
	m.Spec.ClusterName = "changed"
	if diff := cmp.Diff(newList(), original); diff != "" {
		t.Errorf("changing the copy has changed the original (-before, +after):\n%s", diff)
	}
}

func TestTheNameOfAMemberIsTheClustersWhereThatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"east", "east.example.com", "1", strings.Repeat("a", 253)} {
		if got := v1alpha1.ObjectName(name); got != name {
			t.Errorf("the Member of the cluster %q is called %q", name, got)
		}
	}
}

func TestClustersNeverShareAMember(t *testing.T) {
	t.Parallel()
	names := []string{
		"team-a/prod", "team/a-prod", "team-a-prod", "Team-a/prod", "/", "///", "ü", "-", "a-", strings.Repeat("a", 254),
		strings.Repeat("a", 63) + "/" + strings.Repeat("b", 253), "\U0010fffd" + strings.Repeat("x", 300),
	}
	for _, name := range names { // a cluster may be called as another one's Member is
		names = append(names, v1alpha1.ObjectName(name))
	}
	clusters := map[string]string{}
	for _, name := range names {
		object := v1alpha1.ObjectName(name)
		if problems := validation.IsDNS1123Subdomain(object); len(problems) > 0 {
			t.Errorf("the Member of %q is called %q: %v", name, object, problems)
		}
		if other, taken := clusters[object]; taken && other != name {
			t.Errorf("%q and %q have the same Member %q", name, other, object)
		}
		clusters[object] = name
	}
}

func FuzzObjectName(f *testing.F) {
	f.Add("team-a/prod")
	f.Add(fmt.Sprintf("a--%016x", 1))
	f.Fuzz(func(t *testing.T, name string) {
		object := v1alpha1.ObjectName(name)
		if problems := validation.IsDNS1123Subdomain(object); len(problems) > 0 {
			t.Errorf("the Member of %q is called %q: %v", name, object, problems)
		}
		if again := v1alpha1.ObjectName(object); object != name && again == object {
			t.Errorf("the clusters %q and %q have the same Member %q", name, object, object)
		}
	})
}
