package dependents

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
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
	// Annotation is that of the owner with the identities. Without them, the one that has the name counts as the same. It is
	// empty if slices have the identities.
	Annotation string
}

func (e *ReplacedError) Error() string {
	before := make([]string, len(e.Before))
	for i, identity := range e.Before {
		before[i] = fmt.Sprintf("%.64q", string(identity))
	}
	way := "remove that identity from the owner's annotation " + e.Annotation
	if e.Annotation == "" {
		way = "put the cluster's name into the owner's annotation " + GiveUpAnnotation
	}
	return fmt.Sprintf("%s is another cluster now: there may be dependents in the one with the identity %s, and it is %.64q. "+
		"If its credentials lead to the wrong cluster, mend them. If the other one is gone for good, %s, or set ReleaseAfter",
		remote.ClusterText(e.Cluster), strings.Join(before, " and "), string(e.Now), way)
}

// divide tells the clusters that may be this one from those that had its name before.
func divide(at remote.Session, sites []record.Site) (here, before []record.Site) {
	for _, s := range sites {
		if mcowner.Differ(s.Identity, at.ID.UID) {
			before = append(before, s)
		} else {
			here = append(here, s)
		}
	}
	return here, before
}

// replaced returns an error if some clusters had the name of this one before.
func (c *engine) replaced(at remote.Session, before []record.Site) error {
	if len(before) == 0 {
		return nil
	}
	err := &ReplacedError{Cluster: at.Name(), Now: at.ID.UID, Annotation: c.keys.Identities}
	if c.cfg.slices != nil {
		err.Annotation = ""
	}
	for _, s := range before {
		err.Before = append(err.Before, s.Identity)
	}
	return err
}

// unreleased returns those clusters that still hold up the owner.
func (p *placement) unreleased(sites []record.Site) (held, released []record.Site) {
	if len(sites) == 0 {
		return nil, nil
	}
	givenUp := p.asked.givenUp()
	for _, s := range sites {
		switch {
		case givenUp[s.Name]:
			p.o.tellReleased(s, fmt.Errorf("the annotation %s of the owner says so", GiveUpAnnotation))
		case p.engine.cfg.releaseAfter > 0 && p.engine.ledger.missingFor(s) >= p.engine.cfg.releaseAfter:
			p.o.tellReleased(s, fmt.Errorf("for %s another cluster has had the name of the one with the identity %.64q", p.engine.cfg.releaseAfter, string(s.Identity)))
		default:
			held = append(held, s)
			continue
		}
		released = append(released, s)
	}
	p.held = held
	return held, released
}

// withinBounds gives up the clusters that had a name longest ago, if there are too many.
func (a *accounting) withinBounds(named []record.Site) []record.Site {
	given := named[:max(0, len(named)-record.MostSites)]
	for _, s := range given {
		a.record.GivenUp = true
		a.tellReleased(s, fmt.Errorf("%d clusters had the name after the one with the identity %.64q", record.MostSites, string(s.Identity)))
	}
	return named[len(given):]
}

// GiveUpAnnotation on an owner has the names of clusters, divided by commas, that hold up nothing any more: they are gone for
// good, and so is what the owner has there. It counts for clusters that are not in the fleet, and for those whose name leads to
// another cluster now. One that no provider has reported since the program began counts as not in the fleet after a minute.
//
// It counts too where the owner is to have nothing any more, as it is being deleted or the cluster is no target, and nothing is left but what
// may not be removed: what the API server forbids to remove, or what says that the owner's cluster has another identity. That is left there.
const GiveUpAnnotation = "fleet-runtime.dev/give-up-clusters"

// givenUp returns the clusters of which the owner says that they are gone for good.
func (p *plan) givenUp() map[mcreconcile.ClusterName]bool {
	given := map[mcreconcile.ClusterName]bool{}
	for name := range strings.SplitSeq(p.owner.GetAnnotations()[GiveUpAnnotation], ",") {
		if name = strings.TrimSpace(name); name != string(mcreconcile.LocalCluster) {
			given[mcreconcile.ClusterName(name)] = true
		}
	}
	return given
}
