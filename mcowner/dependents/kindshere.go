package dependents

import (
	"cmp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// kindsHere returns the kinds of which the owner may have dependents: those that were noted, or, on an owner of a version
// before that, those of the controller; and those of which something was seen that came late. A kind is in the version in which it was
// desired last in the cluster: another cluster may have it in the one that was noted.
func (p *placement) kindsHere() []remote.Kind {
	kinds := p.kindsNoted()
	for i, k := range kinds {
		kinds[i] = p.served(k)
	}
	return kinds
}

// kindsToRead is kindsHere without the kinds of which it is known that the owner has nothing in the cluster: nothing is asked about them. Of
// those of which nothing is known, as many are left to the next run as exceed mostUnknown.
func (p *placement) kindsToRead() (kinds []remote.Kind) {
	unknown := 0
	for _, k := range p.kindsInTurn(p.kindsNoted()) {
		may, known := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
		switch {
		case may:
		case known:
			continue
		case unknown >= mostUnknown:
			p.unasked[k.GroupKind()] = true
			continue
		default:
			unknown++
		}
		kinds = append(kinds, p.served(k))
	}
	return kinds
}

// kindsNoted is kindsHere in whatever version.
func (p *placement) kindsNoted() []remote.Kind {
	present := p.o.presentKinds(p.at.Name())
	var kinds []remote.Kind
	for _, gvk := range p.asked.noted {
		kinds = append(kinds, p.engine.kindNoted(inVersionOf(present, gvk)))
	}
	if len(kinds) == 0 {
		kinds = slices.Clone(p.engine.kinds)
	}
	for _, gvk := range present {
		if !slices.ContainsFunc(kinds, func(k remote.Kind) bool { return k.GroupKind() == gvk.GroupKind() }) {
			kinds = append(kinds, p.engine.kindNoted(gvk))
		}
	}
	return kinds
}

// isNoted reports whether the owner says that it may have something of a kind: one that says nothing of kinds may have some of each.
func (p *placement) isNoted(k remote.Kind) bool {
	return len(p.asked.noted) == 0 || hasKind(p.asked.noted, k.GroupKind())
}

// served returns a kind in another version if the cluster does not serve this one any more: the objects are the same. That holds for Kinds too:
// what is desired of them waits, and what is not desired any more goes in the other version.
func (p *placement) served(k remote.Kind) remote.Kind {
	other, _ := p.versionOf(k)
	return other
}

// versionOf is remote.Access.Served, and asks once at most. A kind that hung is not asked for: it is read in its own version when it is its turn,
// after the others, and asked for once it has an answer.
func (p *placement) versionOf(k remote.Kind) (served remote.Kind, is bool) {
	if known, asked := p.versions[k.GroupVersionKind]; asked {
		return known.Kind, known.is
	}
	if p.over != nil || p.o.hungBefore(p.keyOfKind(k)) {
		p.unseen = cmp.Or(p.unseen, p.engine.cfg.paces.orDefaults().again)
		return k, true
	}
	served, is, err := p.engine.access.Served(p.at, k)
	if remote.IsHung(err) {
		p.o.noteHung(p.keyOfKind(k), true)
	}
	if p.isOver(err) {
		p.over = err
	}
	if p.versions == nil {
		p.versions = map[schema.GroupVersionKind]versionHere{}
	}
	p.versions[k.GroupVersionKind] = versionHere{served, is}
	return served, is
}

// versionHere is the version in which the cluster serves a kind, if it does.
type versionHere struct {
	remote.Kind

	is bool
}

// noteUnserved asks the cluster anew whether it serves a kind in its version, if an error may say that it does not. What was served once is
// taken for served until then, and the next attempt has the version that is.
func (p *placement) noteUnserved(k remote.Kind, err error) {
	if apierrors.IsNotFound(err) {
		k.IsUnserved(p.at)
		clear(p.versions)
	}
}

// kindNoted returns a kind that was noted. It may be none of the controller's any more.
func (c *engine) kindNoted(gvk schema.GroupVersionKind) remote.Kind {
	for _, k := range c.kinds {
		if k.GroupKind() == gvk.GroupKind() {
			return k
		}
	}
	return remote.Untyped(gvk)
}

// kindsInTurn returns kinds in the order in which they are read: those that hung before are the last.
func (p *placement) kindsInTurn(kinds []remote.Kind) []remote.Kind {
	return slices.SortedStableFunc(slices.Values(kinds), func(a, b remote.Kind) int { return p.compareHung(p.keyOfKind(a), p.keyOfKind(b)) })
}

func (p *placement) keyOfKind(k remote.Kind) dependentKey {
	return dependentKey{cluster: p.at.Name(), kind: k.GroupKind()}
}
