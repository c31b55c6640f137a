package dependents

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// What another Reconciler may say of its dependents.
var (
	ErrContended = errContended
	ErrDenied    = errDenied
)

// SlicesOf returns slices that become as large as this, in bytes.
func SlicesOf(bytes int) *Slices { return &Slices{bytes: bytes} }

// Hasten has a Reconciler look at this interval at what no event tells of: whether a place is free, whether a watch is needed,
// and what is said on owners that are not watched.
func Hasten[T client.Object](r *Reconciler[T], every time.Duration) {
	r.paces = paces{again: every, idle: every, owners: every}
}

// AwaitKindsFor limits for how long a kind may be not served once its CustomResourceDefinition is ready.
func AwaitKindsFor[T client.Object](r *Reconciler[T], most time.Duration) { r.paces.coming = most }

// LiveHash returns a text of what is remembered of an object as it is.
func LiveHash(obj client.Object) (string, error) {
	h, err := liveHash(obj)
	return h.String(), err
}

// ConfigMapsOf returns what lists ConfigMaps of an engagement by their owners, as a controller does.
func ConfigMapsOf(e *fleet.Engagement) func(context.Context) error {
	w := newWatches("fleet", "controller", nil, newLedger())
	return func(ctx context.Context) error {
		kinds, err := remote.KindsOf([]client.Object{&corev1.ConfigMap{}}, scheme.Scheme)
		if err != nil {
			return err
		}
		at := remote.Session{ID: mcowner.ClusterID{Name: e.Name()}, Cluster: e.Cluster(), Engagement: e}
		return w.list(ctx, at, kinds[0], &corev1.ConfigMapList{}, "key")
	}
}
