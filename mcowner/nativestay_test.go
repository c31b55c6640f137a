package mcowner_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestADependentThatIsToStayHasNoNativeOwner, and loses one that it had: others keep it.
func TestADependentThatIsToStayHasNoNativeOwner(t *testing.T) {
	t.Parallel()
	home := mcowner.ByName("east")
	owner := mcowner.Reference{Fleet: "payments", Cluster: "east", APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "cart", UID: "1"}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "2"}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy", OwnerReferences: []metav1.OwnerReference{other}}}
	for _, step := range []struct {
		says string
		want int
	}{{"", 2}, {"Orphan", 1}, {"Orphan", 1}, {"Background", 2}} {
		cm.SetAnnotations(map[string]string{mcowner.DeletionPolicyAnnotation: step.says})
		if err := mcowner.SetControllerReference(owner, cm, home); err != nil {
			t.Fatal(err)
		}
		if len(cm.OwnerReferences) != step.want || cm.OwnerReferences[0] != other {
			t.Errorf("with the deletion policy %q it has the native owners %v, want %d", step.says, cm.OwnerReferences, step.want)
		}
	}
}
