package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// Slices says that the record of an owner's clusters, and what came of each, are in objects of the kind v1alpha1.DependentSlice
// beside the owner. An owner has as many of them as it needs, each smaller than 256 KiB. Every cluster with owners needs the CRD,
// see v1alpha1.CRD, and the controller the right to get, list, watch, create, update, patch and delete its objects. Slices go with
// the finalizer of their owner.
type Slices struct {
	// Namespace is where the slices of owners are that are in none. It must exist. Default: "default".
	Namespace string

	bytes int // how large a slice becomes, zero for record.DefaultBytes
}

const (
	// sliceDelay is how long what came of clusters, and that nothing is left in some, is gathered before slices are written. Where
	// there may be dependents is written at once.
	sliceDelay = time.Second
	// sliceStart is how long slices keep what they say of clusters that were not looked at since the program began.
	sliceStart = time.Minute
)

func (s *Slices) validate() error {
	if s != nil && s.Namespace != "" && len(validation.IsDNS1123Label(s.Namespace)) > 0 {
		return fmt.Errorf("Slices.Namespace is %q, and must be the name of a namespace", s.Namespace)
	}
	return nil
}

// namespaceFor returns where the slices of an owner are.
func (s *Slices) namespaceFor(ownerNamespace string) string {
	if s == nil {
		s = &Slices{}
	}
	return cmp.Or(ownerNamespace, s.Namespace, metav1.NamespaceDefault)
}

// checkSlices returns an error if owners are in the local cluster, and that does not serve slices. Members are not known yet:
// their owners have an event that says so.
func (c config) checkSlices(mgr mcmanager.Manager) error {
	if c.slices == nil || !c.ownersIn.Local && mgr.GetProvider() != nil {
		return nil
	}
	kind := v1alpha1.GroupVersion().WithKind(v1alpha1.Kind)
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		return fmt.Errorf("the field Slices is set, and in the local cluster: %w: %w", record.ErrNoKind, err)
	}
	return nil // what else is in the way shows when the manager starts
}

// knownSlices is what is known of an owner's slices.
type knownSlices struct {
	book    *record.Book // nil if there are no slices, or they were not read yet
	doubts  uint64       // grows when slices may not be as they are thought to be
	read    uint64       // the doubts that there were when they were read
	readIn  any          // the life of the session in which they were read: what others do between two, no event tells
	written time.Time
	// writing says that slices are being written, and seen are the versions in which they were seen meanwhile, by name.
	writing bool
	seen    map[types.NamespacedName]string
	// before has what slices said of clusters that were not looked at since. It counts until the time that is given.
	before map[string]v1alpha1.Cluster
	until  time.Time
}

// readLocked returns the record of an owner as it is stored.
func (o *ownerState) readLocked(owner client.Object, keys record.Keys) record.Record {
	r := keys.Read(owner)
	if o.known.book.IsOf(owner.GetUID()) {
		return r.With(o.known.book)
	}
	return r
}

// read is readLocked.
func (o *ownerState) read(owner client.Object, keys record.Keys) record.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readLocked(owner, keys)
}

// openBook reads the slices of an owner, unless they are known, or there are none. It is called before the record is needed, and fails
// where that has more kinds than can be noted: there may be dependents of those that are not read.
func (c *engine) openBook(ctx context.Context, o *ownerState, home remote.Session, ref mcowner.Reference, owner client.Object) error {
	noted := c.keys.Read(owner)
	if noted.Crowded {
		return fmt.Errorf("reading which kinds of dependents there may be: the annotation %s has more than %d, where nobody but the controller "+
			"is to write; take out those of which nothing is left", c.keys.Kinds, record.MostKinds)
	}
	said := noted.Slices
	o.mu.Lock()
	before, doubts := o.known.book, o.known.doubts
	again := doubts != o.known.read || before != nil && o.known.readIn != home.Life()
	o.mu.Unlock()
	if !again && (said == nil || before.IsOf(ref.UID)) {
		return nil
	}
	switch {
	case said == nil && c.cfg.slices == nil:
		o.shelve(before, nil, nil, doubts, home.Life())
		return nil
	case said == nil:
		said = &record.Slices{}
	}
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	book, clusters, err := c.loadBook(ctx, home.Cluster.GetAPIReader(), ref, *said)
	if err == nil {
		o.shelve(before, book.Recalling(before), clusters, doubts, home.Life())
	}
	return err
}

// loadBook reads the slices of an owner. One that is in no namespace says where they are, which counts only if there are some: whoever may write
// the owner would have slices made wherever he likes.
func (c *engine) loadBook(ctx context.Context, from client.Reader, ref mcowner.Reference, said record.Slices) (*record.Book, []v1alpha1.Cluster, error) {
	ours := c.cfg.slices.namespaceFor(ref.Namespace)
	if ref.Namespace == "" && said.Namespace != "" && said.Namespace != ours && paths.CheckNames(said.Namespace, "") == nil {
		book, clusters, err := record.Load(ctx, from, ref, said)
		if err != nil || book.IsThere() {
			return book, clusters, err
		}
	}
	said.Namespace = ours
	return record.Load(ctx, from, ref, said)
}

// reopenBook reads slices that others have changed. Where the record cannot be read, the account has what is known of its owner.
func (a *accounting) reopenBook(ctx context.Context) (err error) {
	o := a.o
	o.mu.Lock()
	a.plan = o.accountedLocked()
	read := o.unplanned
	o.mu.Unlock()
	switch {
	case a.plan != nil:
		err = a.engine.openBook(ctx, o, a.home, a.plan.ref, a.plan.owner)
	case read != nil && !mcowner.Differ(read.ref.ClusterUID, a.home.ID.UID):
		if err = a.engine.openBook(ctx, o, a.home, read.ref, read.owner); err != nil {
			a.plan = a.engine.planUnread(ctx, read)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unread = Result{Err: err, Since: since(o.unread.Since, text(o.unread.Err) != text(err))}
	if a.unread = o.unread; err != nil {
		a.record = o.readLocked(a.plan.owner, a.engine.keys)
	}
	return err
}

// planUnread returns what a status says of an owner whose record could not be read since the program began: what it asks for, as far as that can be
// found. Nothing is done by it.
func (c *engine) planUnread(ctx context.Context, read *unplanned) *plan {
	p := &plan{owner: read.owner, ref: read.ref, since: read.since}
	if in := read.ref.Request().ClusterName; read.owner.GetDeletionTimestamp().IsZero() && c.cfg.retire == "" && c.access.Within(c.cfg.ownersIn, in) {
		p.targets, _ = c.targetsNow(ctx, read.owner) // it is told once the record can be read
	}
	return p
}

// shelve notes what slices have, unless that was noted meanwhile.
func (o *ownerState) shelve(before, now *record.Book, clusters []v1alpha1.Cluster, doubts uint64, in any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := &o.known
	if k.book != before {
		return
	}
	k.book, k.read, k.readIn = now, doubts, in
	if before == nil {
		k.before, k.until = make(map[string]v1alpha1.Cluster, len(clusters)), time.Now().Add(sliceStart)
		for _, c := range clusters {
			k.before[c.Name] = c
		}
	}
}

// doubtSlice has the slices of an owner read again if it relies on this one.
func (o *ownerState) doubtSlice(slice types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known.book.Has(slice) {
		return false
	}
	o.known.doubts++
	return true
}

// sawSlice has the slices of an owner read again if this one is not as it was read or written last. While slices are being written,
// that cannot be told: the event may be sooner than the answer.
func (o *ownerState) sawSlice(slice types.NamespacedName, version string) (doubted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := &o.known
	switch {
	case k.writing:
		k.seen[slice] = version
		return false
	case k.book.IsBehind(slice, version):
		k.doubts++
		return true
	default:
		return false
	}
}

// writingSlices notes that slices are about to be written.
func (o *ownerState) writingSlices() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known.writing, o.known.seen = true, map[types.NamespacedName]string{}
}

// bookOf returns what is known of the slices, which may be none.
func (a *accounting) bookOf() *record.Book {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if a.o.known.book.IsOf(a.plan.ref.UID) {
		return a.o.known.book
	}
	namespace := metav1.NamespaceDefault
	if s := a.engine.cfg.slices; s != nil {
		namespace = s.namespaceFor(a.plan.ref.Namespace)
	}
	return record.NewBook(a.plan.ref, namespace)
}

// keep stores the record, and notes that it is stored.
func (a *accounting) keep(ctx context.Context, held bool) error {
	if a.plan.mode == finishing && !held {
		a.engine.deletions.settle(a.o.req, a.plan.ref.UID, a.home.Cluster)
	}
	err := a.write(ctx, held)
	if err == nil {
		a.settle()
	}
	return err
}

// write stores the record. In the owner's metadata it is stored before slices are, and again after that if they have more or
// fewer clusters than before: a cluster is in one of both at all times. Slices are removed before the finalizer is.
func (a *accounting) write(ctx context.Context, held bool) error {
	book, use := a.bookOf(), a.engine.cfg.slices != nil && held
	if !use && book.IsEmpty() {
		return a.store(ctx, a.record, held)
	}
	if use && !a.isSliceDue(book) {
		return a.store(ctx, inSlices(a.record, book), held)
	}
	layout := record.Layout{}
	if use {
		var err error
		most := cmp.Or(a.engine.cfg.slices.bytes, record.DefaultBytes)
		if layout, err = book.Lay(a.entries(), most, a.plan.mode == serving); err != nil {
			return err
		}
	}
	if err := a.store(ctx, a.between(book, layout, use), true); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.engine.access.Timeout*time.Duration(1+len(layout.Numbers())/10))
	defer cancel()
	a.o.writingSlices()
	now, err := book.Write(bounded, a.home.Cluster.GetClient(), layout, a.engine.cfg.name)
	a.noteBook(now, errors.Is(err, record.ErrOutdated))
	if err != nil {
		return err
	}
	after := a.record
	if use {
		after = inSlices(a.record, now)
	}
	return a.store(ctx, after, held)
}

// noteBook notes what slices have now. Only the account writes them.
func (a *accounting) noteBook(now *record.Book, outdated bool) {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	k := &a.o.known
	for slice, version := range k.seen {
		if !outdated && now.IsBehind(slice, version) {
			outdated = true
			a.engine.works.addAfter(accountOf(a.o.req), sliceDelay)
		}
	}
	if k.book == nil { // else what it has of others was read in the session of then
		k.readIn = a.home.Life()
	}
	k.book, k.written, k.writing, k.seen = now, time.Now(), false, nil
	if outdated {
		k.doubts++
	}
	if len(k.before) > 0 {
		a.later = max(0, time.Until(k.until))
	}
}

// isSliceDue reports whether slices are to be written now. What is only for others to see waits a little, and so does that nothing
// is left in a cluster.
func (a *accounting) isSliceDue(book *record.Book) bool {
	here := a.engine.keys.Read(a.plan.owner)
	if here.Slices == nil || here.Nonsense || len(here.Sites) > 0 || !book.IsWhole() || a.plan.mode == serving && book.IsDeleting() {
		return true
	}
	noted := setOf(book.Sites())
	for _, s := range a.record.Sites {
		if !noted[s] {
			return true
		}
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	left := sliceDelay - time.Since(a.o.known.written)
	if left > 0 {
		a.later, a.lingers = left, len(noted) > len(setOf(a.record.Sites))
	}
	return left <= 0
}

func setOf(sites []record.Site) map[record.Site]bool {
	set := make(map[record.Site]bool, len(sites))
	for _, s := range sites {
		set[s] = true
	}
	return set
}

// inSlices is the record as the owner's metadata has it once slices have the clusters.
func inSlices(r record.Record, book *record.Book) record.Record {
	r.Sites, r.Slices = nil, book.Slices()
	return r
}

// between is the record as the owner's metadata has it while slices are written: no cluster is taken from it, and no slice is
// relied on that may not be there. An owner that has clusters in an annotation says nothing of slices before these are there: it
// may have no room left. Where the record could not be read, that shows until all slices are written, by those that are not there.
func (a *accounting) between(book *record.Book, layout record.Layout, use bool) record.Record {
	r, here := a.record, a.engine.keys.Read(a.plan.owner)
	r.Slices = book.Slices()
	r.Slices.Numbers = slices.DeleteFunc(r.Slices.Numbers, func(number int) bool {
		_, stays := slices.BinarySearch(layout.Numbers(), number)
		return !stays || here.Slices == nil || !slices.Contains(here.Slices.Numbers, number)
	})
	if use {
		still := record.ByName(a.record.Sites)
		r.Sites = slices.DeleteFunc(here.Sites, func(s record.Site) bool { return len(still[s.Name]) == 0 })
		switch {
		case r.Nonsense:
			r.Slices.Numbers = layout.Numbers()
			if here.Slices != nil {
				r.Slices.Numbers = append(r.Slices.Numbers, here.Slices.Numbers...)
			}
			slices.Sort(r.Slices.Numbers)
			r.Slices.Numbers = slices.Compact(r.Slices.Numbers)
		case here.Slices == nil && len(r.Sites) > 0:
			r.Slices = nil
		}
	}
	return r
}
