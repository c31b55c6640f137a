package dependents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// kindsPresent are the kinds of which an owner has, or may have, something in one cluster. A kind is added before anything of it is
// written, and when something of it is seen. It is taken out once nothing of it is wanted, and none was found.
type kindsPresent struct {
	kinds []schema.GroupVersionKind
	// in is the engagement, or the guest, in which all kinds were looked for, nil if that was not done yet. Of other kinds there is
	// nothing. at is the cluster that this was.
	in any
	at record.Site
	// lacking are the kinds of which there is nothing in lackingIn, where not all kinds were looked for yet.
	lacking   []schema.GroupKind
	lackingIn any
	// seen are the kinds of which something was seen since a run began: what the run has read may be older.
	seen []schema.GroupKind
	// late are those of which a request got no answer, by when that was last. The API server may carry it out whenever it likes, so they stay.
	late map[schema.GroupKind]time.Time
	// waves are the last ones in which something of a kind was written since the program began.
	waves map[schema.GroupKind]wave
	// empty are kinds of which there was nothing when they were read last, in the engagement or guest emptyIn.
	empty   map[schema.GroupKind]bool
	emptyIn any
	// running is how many runs may put something there.
	running int
}

// mostLate is for how long a request that got no answer may hold up waves. API servers give up after a minute, unless they are told otherwise.
const mostLate = 10 * time.Minute

func (k *kindsPresent) isLate(kind schema.GroupKind) bool { return !k.late[kind].IsZero() }

func (k *kindsPresent) has(kind schema.GroupKind) bool { return hasKind(k.kinds, kind) }

func (k *kindsPresent) add(gvk schema.GroupVersionKind) {
	k.remove(gvk.GroupKind()) // it may have been in another version
	k.kinds = append(k.kinds, gvk)
}

// see is add for what was seen, which stays in the version in which it was added first.
func (k *kindsPresent) see(gvk schema.GroupVersionKind) {
	if !k.has(gvk.GroupKind()) {
		k.add(gvk)
	}
	if !slices.Contains(k.seen, gvk.GroupKind()) {
		k.seen = append(k.seen, gvk.GroupKind())
	}
	delete(k.empty, gvk.GroupKind())
}

func (k *kindsPresent) remove(kind schema.GroupKind) {
	k.kinds = slices.DeleteFunc(k.kinds, func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == kind })
}

func hasKind(kinds []schema.GroupVersionKind, kind schema.GroupKind) bool {
	return slices.ContainsFunc(kinds, func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == kind })
}

// inVersionOf returns a kind as it is among others, or itself if it is not among them.
func inVersionOf(kinds []schema.GroupVersionKind, gvk schema.GroupVersionKind) schema.GroupVersionKind {
	if i := slices.IndexFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == gvk.GroupKind() }); i >= 0 {
		return kinds[i]
	}
	return gvk
}

// kindsLook is what a run has found out about kinds in a cluster.
type kindsLook struct {
	in   any // see kindsPresent
	at   record.Site
	some []schema.GroupVersionKind
	none []schema.GroupKind
	// more says that kinds are left to be looked for.
	more bool
}

// note takes over what a run has found out, and reports whether that is news.
func (k *kindsPresent) note(found *kindsLook) (news bool) {
	if found == nil {
		return false
	}
	for _, gvk := range found.some {
		k.add(gvk)
	}
	if found.more {
		k.lacking, k.lackingIn = found.none, found.in
		return false
	}
	news = k.in == nil || k.at != found.at
	k.in, k.at = found.in, found.at
	k.lacking, k.lackingIn = nil, nil
	for _, kind := range found.none {
		if k.has(kind) && !slices.Contains(k.seen, kind) && !k.isLate(kind) {
			k.remove(kind)
			delete(k.waves, kind)
			news = true
		}
	}
	return news
}

// wants notes that something of these kinds is about to be written to a cluster.
func (o *ownerState) wants(name mcreconcile.ClusterName, kinds []schema.GroupVersionKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	for _, gvk := range kinds {
		p.present.add(gvk)
		delete(p.present.empty, gvk.GroupKind())
	}
}

// sees notes that something of a kind was seen in a cluster, in whatever version: it is read in the one that was desired.
func (o *ownerState) sees(name mcreconcile.ClusterName, gvk schema.GroupVersionKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.parts[name]
	if !ok {
		return
	}
	p.present.see(gvk)
}

// finds is sees for what the collector has found. It reports whether that is to be looked at: the owner is to have nothing in the cluster, or no run
// knows of the kind there, nor looks for it as one that is noted.
func (o *ownerState) finds(name mcreconcile.ClusterName, gvk schema.GroupVersionKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	isToRead := p.present.in == nil && (len(o.record.Kinds) == 0 || hasKind(o.record.Kinds, gvk.GroupKind()))
	if o.concernsLocked(name) && (isToRead || p.present.has(gvk.GroupKind())) {
		return false
	}
	p.present.see(gvk)
	return true
}

// saw notes that something of a kind was seen that an owner has in a cluster.
func (l *ledger) saw(owner mcreconcile.Request, in mcreconcile.ClusterName, gvk schema.GroupVersionKind) {
	if o := l.get(owner); o != nil {
		o.sees(in, gvk)
	}
}

// presence reports whether there may be something of a kind in a cluster, and whether it was looked for in this engagement.
func (o *ownerState) presence(name mcreconcile.ClusterName, in any, kind schema.GroupKind) (may, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	known = p.present.in != nil && p.present.in == in || p.present.lackingIn == in && slices.Contains(p.present.lacking, kind)
	return p.present.has(kind), known
}

// mayGo reports whether it is worth asking whether nothing of a kind is left in a cluster.
func (o *ownerState) mayGo(name mcreconcile.ClusterName, kind schema.GroupKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.partLocked(name).present.isLate(kind)
}

// presentKinds returns the kinds of which there may be something in a cluster, whether they are noted or not.
func (o *ownerState) presentKinds(name mcreconcile.ClusterName) []schema.GroupVersionKind {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.partLocked(name).present.kinds)
}

// droppedKindsLocked returns the kinds of the record of which there is nothing in any cluster of it, nor is to be. That is known once
// all were looked at, and nobody is about to put something there. One kind stays: a record without any says nothing about kinds.
func (o *ownerState) droppedKindsLocked(r record.Record) []schema.GroupVersionKind {
	o.kindsLater = false
	if len(o.lost) > 0 || r.GivenUp || r.Nonsense || len(r.Sites) == 0 || o.plan.mode != serving {
		return nil
	}
	left, pending := slices.Clone(r.Kinds), false
	for name, sites := range record.ByName(r.Sites) {
		p := o.parts[name]
		if p == nil || p.stray != nil || p.present.in == nil || len(sites) != 1 || sites[0] != p.present.at {
			return nil
		}
		pending = pending || p.seq != o.plan.seq || p.present.running > 0
		left = slices.DeleteFunc(left, func(gvk schema.GroupVersionKind) bool {
			return p.present.has(gvk.GroupKind()) || hasKind(p.kinds, gvk.GroupKind())
		})
	}
	if len(left) > 0 && len(left) == len(r.Kinds) {
		left = left[1:]
	}
	if o.kindsLater = pending && len(left) > 0; pending {
		return nil
	}
	return left
}

// likelyKinds returns the kinds of what is likely to be desired in a cluster, before it is known what is there.
func (c *engine) likelyKinds(ctx context.Context, owner client.Object, in mcreconcile.ClusterName) (kinds []schema.GroupVersionKind) {
	desired, err := c.cfg.desired(ctx, owner, Target{Cluster: in, Labels: c.access.LabelsOf(in)})
	if err != nil {
		return nil // the result of the cluster says so
	}
	for _, obj := range desired {
		if k, err := c.kindOf(ctx, obj); err == nil {
			kinds = kindsOf(kinds, []schema.GroupVersionKind{k.GroupVersionKind})
		}
		if c.cfg.createNamespaces && obj.GetNamespace() != "" {
			kinds = kindsOf(kinds, []schema.GroupVersionKind{c.namespaces().GroupVersionKind})
		}
	}
	return kinds
}

// expect notes which kinds are likely to be desired in the cluster, of those of which it is not known whether there is something. They
// are watched in any case, and need not be asked for first.
func (p *placement) expect(ctx context.Context) {
	unsure := slices.DeleteFunc(p.kindsNoted(), func(k remote.Kind) bool { return !p.isUnsure(k) })
	if len(unsure) == 0 {
		return
	}
	home := p.asked.home
	likely := p.engine.likelyKinds(mcreconcile.WithCluster(ctx, home.Name(), home.Cluster), p.asked.owner, p.at.Name())
	for _, k := range unsure {
		if hasKind(likely, k.GroupKind()) {
			p.o.wants(p.at.Name(), []schema.GroupVersionKind{p.served(k).GroupVersionKind})
		}
	}
}

// isUnsure reports whether the cluster must be asked whether the owner has something of a kind there. It need not where that takes as much
// as to read the kind: where it is watched already, and where there is no cache.
func (p *placement) isUnsure(k remote.Kind) bool {
	may, known := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
	return !may && !known && p.at.Guest == nil && !p.engine.watches.isWatched(p.at.Name(), k.GroupVersionKind)
}

// isKnownToLack reports whether it is known that the owner has nothing of a kind in the cluster.
func (p *placement) isKnownToLack(k remote.Kind) bool {
	may, known := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
	return known && !may
}

// mostUnknown is of how many kinds a run finds out whether there is something in the cluster. Whoever may write an owner may note kinds on it.
const mostUnknown = 50

// errUnlooked says that kinds are left of which it is not known whether there is something in the cluster. The next run goes on with them.
var errUnlooked = fmt.Errorf("%w: not all kinds that are noted were looked for yet", ErrWaiting)

// lacks reports whether the owner has nothing of a kind in the cluster, and finds it out where it is not known.
func (p *placement) lacks(ctx context.Context, k remote.Kind) (bool, error) {
	may, known := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
	if may || known {
		return !may, nil
	}
	if _, is := p.versionOf(k); !is {
		return true, nil // it would be watched until it is
	}
	if p.isUnsure(k) {
		return p.isAbsent(ctx, k)
	}
	return false, nil
}

// lookedFor returns what was found out about the kinds that were noted, once all that is desired is known. It asks the API server about
// those of which there was something before, and is to be nothing any more, unless something else is in the way.
func (p *placement) lookedFor(
	ctx context.Context, wants []wanted, found []dependent, unknown map[schema.GroupKind]error, done *report,
) *kindsLook {
	look := &kindsLook{in: p.at.Life(), at: siteOf(p.at), some: p.kindsWanted(wants), more: len(p.unasked) > 0}
	for _, d := range found {
		if !hasKind(look.some, d.GroupKind()) {
			look.some = append(look.some, d.GroupVersionKind)
		}
	}
	for _, k := range p.kindsNoted() {
		switch kind := k.GroupKind(); {
		case hasKind(look.some, kind), p.unasked[kind]:
		case unknown[kind] == nil && p.hasNone(ctx, k, done):
			look.none = append(look.none, kind)
		default:
			look.some = append(look.some, p.served(k).GroupVersionKind)
		}
	}
	return look
}

// hasNone reports whether it is certain that the owner has nothing of a kind that was not found in the cluster. The API server is asked
// if there was something before.
func (p *placement) hasNone(ctx context.Context, k remote.Kind, done *report) bool {
	may, _ := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
	if !may {
		return true
	}
	if done.Err != nil || !p.o.mayGo(p.at.Name(), k.GroupKind()) {
		return false
	}
	some, err := p.hasSome(ctx, p.served(k))
	if done.Err = err; some { // the cache does not have it yet
		p.o.sees(p.at.Name(), p.served(k).GroupVersionKind)
	}
	return !some && err == nil
}

// hasSome asks the API server whether the owner has something of a kind in the cluster.
func (p *placement) hasSome(ctx context.Context, k remote.Kind) (bool, error) {
	selector, err := remote.OfOwner(p.asked.ref)
	if err != nil {
		return false, err
	}
	all := remote.Scan{Namespaces: p.engine.cfg.namespaces}
	err = all.Each(ctx, p.engine.access, p.at, k, selector, func(obj *metav1.PartialObjectMetadata) error {
		if p.at.Has(k, obj, p.asked.ref) {
			return errSome
		}
		return nil
	})
	if errors.Is(err, errSome) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("finding out whether something is left: %w", err)
	}
	return false, nil
}

// kindsWanted returns the kinds of what is wanted, and can be had, as the cluster serves them.
func (p *placement) kindsWanted(wants []wanted) []schema.GroupVersionKind {
	kinds := newKinds(nil, wants)
	for i, gvk := range kinds {
		kinds[i] = p.served(p.engine.kindNoted(gvk)).GroupVersionKind
	}
	return kinds
}

// readWanted reads the kinds of what is wanted that were not read before, as there was nothing of them, or they were read in another
// version. They are watched from then on.
func (p *placement) readWanted(ctx context.Context, wants []wanted, found *[]dependent, unknown map[schema.GroupKind]error) {
	kinds := p.kindsWanted(wants)
	p.o.wants(p.at.Name(), kinds)
	var more []remote.Kind
	for _, gvk := range kinds {
		if k := p.engine.kindNoted(gvk); unknown[k.GroupKind()] == nil && !p.read[k.GroupVersionKind] {
			more = append(more, k)
		}
	}
	also, why := p.known(ctx, more)
	isAgain := func(d dependent) bool {
		return why[d.GroupKind()] == nil && slices.ContainsFunc(more, func(k remote.Kind) bool { return k.GroupKind() == d.GroupKind() })
	}
	*found = append(slices.DeleteFunc(*found, isAgain), also...)
	maps.Copy(unknown, why)
	p.o.noteWaves(p.at.Name(), wants)
}
