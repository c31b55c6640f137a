package dependents

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ReplacedError says that an owner may have dependents in a cluster whose name leads to another cluster now. Nobody knows
// whether they are still there. Nothing is done in the cluster that has the name, and the owner waits.
type ReplacedError struct {
	Cluster mcreconcile.ClusterName
	// Before are the identities of the clusters that had the name, and Now is that of the one that has it, see
	// fleet.Engagement.Identity.
	Before []types.UID
	Now    types.UID
	// Annotation is that of the owner with the identities. Without them, the one that has the name counts as the same.
	Annotation string
}

func (e *ReplacedError) Error() string {
	before := make([]string, len(e.Before))
	for i, identity := range e.Before {
		before[i] = fmt.Sprintf("%.64q", string(identity))
	}
	return fmt.Sprintf("%s is another cluster now: there may be dependents in the one with the identity %s, and it is %.64q. "+
		"If its credentials lead to the wrong cluster, mend them. If the other one is gone for good, remove that identity from the owner's annotation %s, or set ReleaseAfter",
		clusterText(e.Cluster), strings.Join(before, " and "), string(e.Now), e.Annotation)
}

// isNoted reports whether a cluster as it is now is among those of its name in which the owner may have dependents. Where it
// is not known which it is, its name counts.
func (s site) isNoted(named []site) bool {
	return slices.Contains(named, s) || s.identity == "" && len(named) > 0
}

// divide tells the clusters that may be this one from those that had its name before.
func (at session) divide(sites []site) (here, before []site) {
	for _, s := range sites {
		if mcowner.Differ(s.identity, at.identity) {
			before = append(before, s)
		} else {
			here = append(here, s)
		}
	}
	return here, before
}

// replaced returns an error if some clusters had the name of this one before.
func (p *pass) replaced(at session, before []site) error {
	if len(before) == 0 {
		return nil
	}
	err := &ReplacedError{Cluster: at.name, Now: at.identity, Annotation: p.record.identities}
	for _, s := range before {
		err.Before = append(err.Before, s.identity)
	}
	return err
}

// unreleased returns those clusters that still hold up the owner.
func (p *pass) unreleased(sites []site) []site {
	return slices.DeleteFunc(slices.Clone(sites), func(s site) bool {
		if !p.isOverdue(s) {
			return false
		}
		p.tellReleased(s, fmt.Errorf("for %s another cluster has had the name of the one with the identity %.64q", p.releaseAfter, string(s.identity)))
		return true
	})
}

// mostSites is how many clusters of one name an owner knows. A name can be led to as many as somebody likes, and what an owner
// can note is bounded.
const mostSites = 16

// withinBounds gives up the clusters that had a name longest ago, if there are too many.
func (p *pass) withinBounds(named []site) []site {
	given := named[:max(0, len(named)-mostSites)]
	for _, s := range given {
		p.tellReleased(s, fmt.Errorf("%d clusters had the name after the one with the identity %.64q", mostSites, string(s.identity)))
	}
	return named[len(given):]
}

// tellReplaced tells of clusters that had the name of a target before. That is no fault of the target, and becomes one when
// the owner is deleted.
func (p *pass) tellReplaced(at session, before []site) {
	news, err := "", p.replaced(at, before)
	if err != nil {
		news = err.Error()
	}
	if p.memory.isNews("replaced "+string(at.name), news) && err != nil {
		p.emit(corev1.EventTypeWarning, EventReplaced, "Apply", about(at.name, string(at.identity)), news)
	}
}
