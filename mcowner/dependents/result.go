package dependents

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Result is what came of one cluster. It is not changed: the next one is another.
type Result struct {
	Cluster mcreconcile.ClusterName

	// Targeted says whether the owner is to have dependents there. If not, they are being removed.
	Targeted bool

	// Objects are the dependents that Desired has returned, in the order in which they are applied, and after them those that are being
	// removed.
	Objects []ObjectResult

	// Err says what keeps the cluster from being as desired. It is nil if nothing does. With errors.Is it may be
	// [ErrPending], [ErrWaiting] or [ErrLeaving]; with errors.As it may be a fleet.StateError if the cluster is not ready, a
	// [ConflictError], or an error of the API server. Of what it says about one object, what is beyond two kilobytes is cut off, and so is
	// what an API server has answered, with most of its details.
	Err error

	// Unready says what of that which is as desired is not ready, by the rules of [WaveAnnotation], or what is waited for beside objects that
	// others change back. It is looked for if the owner's
	// [Rollout] limits something; otherwise only as far as a later wave waits for it.
	Unready error

	// Stuck says that the cluster is pending, waits or has something that is not ready, for longer than [Rollout.ProgressDeadline], which says
	// what does not count.
	Stuck bool

	// Since is when Err and Unready became what they are, in what they say. A restart begins anew, but for what Slices say.
	Since time.Time
}

// Dependents returns the dependents that are there, as last seen: of the types of Kinds, and with their status. They may be
// a little older than what was just applied, are shared, and must not be changed.
func (r Result) Dependents() []client.Object {
	var there []client.Object
	for _, o := range r.Objects {
		if o.Object != nil && o.State != Deleting {
			there = append(there, o.Object)
		}
	}
	return there
}

// ErrPending says that a cluster was not made as desired yet, and nothing is known to be in the way.
var ErrPending = errors.New("not done yet")

// ErrLeaving says that a cluster is about to leave the fleet, so that nothing is put there any more. What it waits for before that is in the
// same error.
var ErrLeaving = errors.New("the cluster leaves the fleet")

// ObjectResult is what came of one dependent.
type ObjectResult struct {
	Kind schema.GroupVersionKind
	Key  types.NamespacedName
	// UID is empty if the object is not there.
	UID   types.UID
	State State
	// Err says why the object is not as desired, nil if it is. It is no longer than that of a Result.
	Err error
	// Since is when State became what it is. A restart begins anew, but for what Slices say.
	Since time.Time
	// Object is the dependent as last seen, nil if it is not there, or not the owner's, or could not be read in its type of Kinds. If it is
	// being deleted, it may be the metadata alone. It is shared, and must not be changed.
	Object client.Object
}

// State is how a dependent is, after what was done last.
type State string

// The states of dependents.
const (
	Applied   State = "Applied"   // it was created, or changed as what is desired has changed
	Unchanged State = "Unchanged" // it is as desired, and was before
	Drifted   State = "Drifted"   // somebody had changed it, and it was changed back, or is to go; with an error, that happens time and again
	Conflict  State = "Conflict"  // an object that is not the owner's has its place, see ConflictError
	Forbidden State = "Forbidden" // a right is missing
	NotServed State = "NotServed" // the cluster does not serve the kind
	Waiting   State = "Waiting"   // something else must come, or go, first
	Failed    State = "Failed"    // the API server has refused for another reason
	Deleting  State = "Deleting"  // it is being deleted
	Suspended State = "Suspended" // it is not as desired, and nothing is done about it, as was asked for
)

// ConflictError says that an object that is to be a dependent is there, and belongs to somebody else or to nobody. It is
// left alone. It is tried again after some seconds, in case the object is gone.
type ConflictError struct {
	Cluster mcreconcile.ClusterName
	// Object names it, such as "Deployment default/nginx".
	Object string
	// Why says to whom it belongs.
	Why error
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s of cluster %q is not this owner's, and is left alone: %v", e.Object, e.Cluster, e.Why)
}

// Unwrap returns Why.
func (e *ConflictError) Unwrap() error { return e.Why }
