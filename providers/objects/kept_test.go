package objects

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAnObjectIsReadAsItWasKept, of a kind that Kubernetes brings and of any other.
func TestAnObjectIsReadAsItWasKept(t *testing.T) {
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "one", UID: "1", ResourceVersion: "2", Labels: map[string]string{"a": "b"}, Finalizers: []string{"x/y"},
			CreationTimestamp: metav1.Unix(1, 0), DeletionTimestamp: &metav1.Time{Time: metav1.Unix(2, 0).Time},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"kubeconfig": []byte("x"), "empty": nil},
	}
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "x/v1", "kind": "Cluster", "metadata": map[string]any{"namespace": "ns", "name": "one", "resourceVersion": "2"},
		"spec": map[string]any{"server": "https://x", "n": int64(1)},
	}}
	for want, into := range map[client.Object]client.Object{secret: &corev1.Secret{}, cluster: &unstructured.Unstructured{}} {
		k, ok := keep(want).(*kept)
		if !ok || client.ObjectKeyFromObject(k) != client.ObjectKeyFromObject(want) || k.GetResourceVersion() != "2" {
			t.Fatalf("%T is kept as %+v", want, k)
		}
		if err := k.into(into, want.GetObjectKind().GroupVersionKind()); err != nil {
			t.Fatal(err)
		}
		if secret, ok := into.(*corev1.Secret); ok {
			secret.Data["empty"] = nil // nothing is nothing
		}
		if diff := cmp.Diff(want, into); diff != "" {
			t.Errorf("%T is read otherwise (-kept +read):\n%s", want, diff)
		}
	}
	again, err := scope{packed: true}.transform()(keep(secret))
	if _, ok := again.(*kept); !ok || err != nil {
		t.Errorf("what is kept becomes %T when an informer asks for it twice: %v", again, err)
	}
}

// TestCallsForOneObjectFollowEachOther, and one that is waited for in vain holds up nobody after its time.
func TestCallsForOneObjectFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		one, other := client.ObjectKey{Name: "one"}, client.ObjectKey{Name: "other"}
		end, err := all.take(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		endOther, err := all.take(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		endOther()
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := all.take(impatient, one); err == nil {
			t.Error("two have the turn")
		}
		next := make(chan struct{})
		go func() {
			defer close(next)
			if end, err := all.take(t.Context(), one); err == nil {
				end()
			}
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Error("two have the turn")
		default:
		}
		end()
		<-next
		if len(all.taken) != 0 {
			t.Errorf("%d turns are left", len(all.taken))
		}
	})
}
