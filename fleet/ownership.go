package fleet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Ownership decides on which members this replica works, where several replicas share a fleet. Package sharding has one.
// Without one, a replica owns all members.
//
// Run is called once, all other methods at any time and for several members at once. They do not wait for anything.
type Ownership interface {
	// Run takes part in sharing the members. When ctx is done, the replica gives up what it owns: Run returns when every
	// tenure was released and the others know, or when that cannot be had. local is the cluster that the manager runs
	// against, started. changed is to be called, without a lock that the other methods take, when their answers, or those of
	// a Tenure, are others than before.
	//
	// An error that Run returns before ctx is done stops the manager.
	Run(ctx context.Context, local cluster.Cluster, changed func()) error

	// Own returns the owner of a member, which is known from now on. If that is this replica, it owns the member until the
	// tenure is released. It is asked again when labels change, and, for a member that is not owned, when anything has changed.
	Own(name ClusterName, labels map[string]string) Owner

	// Forget tells that a name is no member any more.
	Forget(name ClusterName)
}

// Lease names the Lease by which others see that this replica lives, as the [Ownership] says it by a method Lease. It has no name
// if there is none.
func (f *Fleet) Lease() types.NamespacedName {
	if leased, ok := f.opts.Ownership.(interface{ Lease() types.NamespacedName }); ok {
		return leased.Lease()
	}
	return types.NamespacedName{}
}

// Owner is which replica works on a member.
type Owner struct {
	// Replica is the owner's name. It is empty while there is none.
	Replica string
	// Tenure is that of this replica, nil if it does not own the member.
	Tenure Tenure
	// Spent is told how long each reconcile of the member has held a worker, when it has ended. It waits for nothing, and is
	// called for several at once. It is nil if nobody wants to know.
	Spent func(time.Duration)
	// Why says in one line why this replica does not own the member, if there is more to say than the owner's name.
	Why string
}

// Tenure is the time for which this replica owns a member. Its methods do not wait, and are called for several requests at once.
type Tenure interface {
	// Epoch is greater for each owner than for the one before, while the labels by which the member is shared stay the same.
	// With other such labels it is counted anew, and may be less than before, or equal.
	Epoch() int64

	// Remaining returns for how long what is sent to the member may still change something there. If it is not positive,
	// nothing may be sent: the replica cannot prove now that it owns the member, or the tenure is over.
	Remaining() time.Duration

	// Over returns why the replica must stop to work on the member, such as that another one is to own it. It is nil while it
	// need not. A tenure that is over once stays so.
	Over() error

	// Covers reports whether the tenure is still that of the member, now that it has these labels.
	Covers(labels map[string]string) bool

	// Release tells that nothing runs for the member any more. It is called once.
	Release()
}
