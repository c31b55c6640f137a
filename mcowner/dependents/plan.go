package dependents

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// plan is what an owner asks for. It is not changed: the next one is another.
type plan struct {
	seq         uint64         // grows with what may be desired
	asked       uint64         // seq when the owner last asked for something else: what is in its status is no such thing
	since       time.Time      // when the owner last asked for something else, or the program began
	home        remote.Session // the owner's cluster when the plan was made
	owner       client.Object
	ref         mcowner.Reference
	mode        mode
	policy      Policy
	rollout     Rollout
	revision    hash                                          // of what the owner says, if the rollout limits anything
	propagation metav1.DeletionPropagation                    // of dependents that are removed
	unclear     error                                         // why it is not known what becomes of dependents when the owner goes
	targets     []mcreconcile.ClusterName                     // ordered, each once
	asOf        uint64                                        // the owner's changes just before the targets were found
	usable      map[mcreconcile.ClusterName]*fleet.Engagement // that the owner may have dependents in, just before the targets were found
}

// asksMore reports whether a plan of the same owner asks for something else than the one before, but for other targets.
func (p *plan) asksMore(before *plan) bool {
	return p.mode != before.mode || p.policy != before.policy || p.rollout != before.rollout || p.propagation != before.propagation ||
		!equality.Semantic.DeepEqual(saidBy(p.owner), saidBy(before.owner))
}

// saidBy returns what an owner says, without what controllers note on it.
func saidBy(owner client.Object) client.Object {
	said := bare(owner)
	record.Strip(said)
	if len(said.GetAnnotations()) == 0 {
		said.SetAnnotations(nil)
	}
	return said
}

// unplanned is an owner as it was read, while no plan could be made of that.
type unplanned struct {
	owner client.Object
	ref   mcowner.Reference
	left  bool      // there may be dependents
	keep  bool      // they are to stay by its policy, or that is not known
	since time.Time // when it was read first
}

// keeps reports whether dependents of the owner are to stay, or that is not known. It was seen to be deleted as seen says, empty for not at all.
func (u unplanned) keeps(seen metav1.DeletionPropagation) bool {
	said, unclear := saidPolicy(u.owner)
	if isOpen(said) {
		said = cmp.Or(seen, said)
	}
	return said == metav1.DeletePropagationOrphan || unclear != nil || u.keep
}

// keeps reports whether dependents of the owner are to stay by the plan, if there is one, or that is not known.
func (p *plan) keeps() bool {
	if p == nil {
		return false
	}
	return p.mode == finishing && p.propagation == metav1.DeletePropagationOrphan || p.isUnclear() || p.policy.Keep
}

// isUnclear reports whether it is not known what becomes of dependents when the owner goes.
func (p *plan) isUnclear() bool { return p.unclear != nil }

// mode is what is done about an owner.
type mode int8

const (
	serving   mode = iota
	finishing      // it is being deleted
	retiring       // it is no longer the controller's, and is let go
)
