package dependents

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
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
