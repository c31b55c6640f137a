package ofkind_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/internal/ofkind"
)

// TestAnObjectSaysTheKindThatItIsGiven, and is itself otherwise.
func TestAnObjectSaysTheKindThatItIsGiven(t *testing.T) {
	t.Parallel()
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	for _, kind := range []schema.GroupVersionKind{secret, {Group: "events.k8s.io", Version: "v1", Kind: "Event"}, {}} {
		obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		obj.SetGroupVersionKind(secret)
		said := ofkind.Object(kind, obj)
		if is := said.GetObjectKind().GroupVersionKind(); is != kind {
			t.Errorf("it says that it is of the kind %v, want %v", is, kind)
		}
		said.SetLabels(map[string]string{"a": "b"})
		if obj.Labels["a"] != "b" || obj.GroupVersionKind() != secret {
			t.Errorf("the object itself has the labels %v, and is of the kind %v", obj.Labels, obj.GroupVersionKind())
		}
	}
}
