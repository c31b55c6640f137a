package dependents

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestACopyOfAnOwnerIsNotItsOwnersOwners: in another cluster Kubernetes' garbage collector would take that for gone, and delete the copy.
func TestACopyOfAnOwnerIsNotItsOwnersOwners(t *testing.T) {
	t.Parallel()
	natives := []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Secret", Name: "controller", UID: "2", Controller: new(true)}, {APIVersion: "v1", Kind: "Secret", Name: "b", UID: "3"},
	}
	there := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "there", UID: "4"}
	p := placing()
	p.asked.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: natives}}
	for name, more := range map[string][]metav1.OwnerReference{"as it is": nil, "with one of its own": {there}} {
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "copy", Namespace: "default", OwnerReferences: slices.Concat(natives, more)}}
		p.disown(copied)
		if got := copied.OwnerReferences; len(got) != len(more) || len(more) > 0 && got[0].UID != there.UID || len(more) == 0 && got != nil {
			t.Errorf("%s, it refers to %v", name, got)
		}
		if err := p.control(copied); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
