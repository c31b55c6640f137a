package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Slices says that the record of an owner's clusters, and what came of each, are kept in objects of the kind
// v1alpha1.DependentSlice beside the owner, for owners with many clusters: an annotation has room for 8000. Every cluster with
// owners needs the CRD, see v1alpha1.CRD. What annotations have moves to slices, and back if the field is unset. Slices go with
// the finalizer of their owner.
type Slices struct {
	// Namespace is where the slices of owners are that are in none. It must exist. Default: "default".
	Namespace string
	// Bytes is how large a slice becomes. Smaller ones are written faster, larger ones are fewer. Default: 200 KiB, at most 1
	// MiB.
	Bytes int
}

const (
	mostBytes  = 1 << 20
	leastBytes = 1 << 10
	// sliceDelay is how long what came of clusters is gathered before slices are written. The record is written at once.
	sliceDelay = time.Second
	// longestError is how much of an error a slice has, in bytes.
	longestError = 512
)

func (s *Slices) validate() error {
	if s != nil && s.Bytes != 0 && (s.Bytes < leastBytes || s.Bytes > mostBytes) {
		return fmt.Errorf("Slices.Bytes is %d, and must be from %d to %d", s.Bytes, leastBytes, mostBytes)
	}
	return nil
}

// namespaceFor returns where the slices of an owner are.
func (s *Slices) namespaceFor(owner client.Object) string {
	return cmp.Or(owner.GetNamespace(), s.Namespace, metav1.NamespaceDefault)
}

// openBook reads the slices of an owner, unless they are known, or there are none. It is called before the record is needed.
func (c *engine) openBook(ctx context.Context, o *ownerState, home remote.Session, ref mcowner.Reference, owner client.Object) error {
	said := c.keys.Read(owner).Slices
	o.mu.Lock()
	before, again := o.book, o.bookOutdated
	o.mu.Unlock()
	if before.IsOf(ref.UID) && !again || said == nil && !again {
		return nil
	}
	if said == nil || said.Namespace == "" {
		if c.cfg.slices == nil {
			c.closeBook(o, before, nil)
			return nil
		}
		said = &record.Slices{Namespace: c.cfg.slices.namespaceFor(owner)}
	}
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	book, err := record.Load(ctx, home.Cluster.GetAPIReader(), ref, *said)
	if err == nil {
		c.closeBook(o, before, book)
	}
	return err
}

// reopenBook reads slices that others have changed.
func (a *accounting) reopenBook(ctx context.Context) error {
	a.o.mu.Lock()
	p := a.o.plan
	a.o.mu.Unlock()
	if p == nil {
		return nil
	}
	return a.engine.openBook(ctx, a.o, a.home, p.ref, p.owner)
}

// closeBook notes what slices have, unless that was noted meanwhile.
func (c *engine) closeBook(o *ownerState, before, now *record.Book) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.book == before {
		o.book, o.bookOutdated = now, false
	}
}

// doubtBook has the slices of an owner read again.
func (o *ownerState) doubtBook() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bookOutdated = true
}

// bookOf returns what is known of the slices, which may be none.
func (a *accounting) bookOf() *record.Book {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if a.o.book.IsOf(a.plan.ref.UID) {
		return a.o.book
	}
	namespace := metav1.NamespaceDefault
	if s := a.engine.cfg.slices; s != nil {
		namespace = s.namespaceFor(a.plan.owner)
	}
	return record.NewBook(a.plan.ref, namespace)
}

// keep stores the record, and notes that it is stored.
func (a *accounting) keep(ctx context.Context, held bool) error {
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
		most := cmp.Or(a.engine.cfg.slices.Bytes, record.DefaultBytes)
		if layout, err = book.Lay(entriesOf(a.record.Sites, a.results()), most, a.plan.mode == serving); err != nil {
			return err
		}
	}
	if err := a.store(ctx, a.between(book, layout, use), true); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.engine.access.Timeout*time.Duration(1+len(layout.Numbers())/10))
	defer cancel()
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
	a.o.book, a.o.bookOutdated, a.o.bookWritten = now, outdated, time.Now()
}

// isSliceDue reports whether slices are to be written now. What is only for others to see waits a little.
func (a *accounting) isSliceDue(book *record.Book) bool {
	here := a.engine.keys.Read(a.plan.owner)
	if here.Slices == nil || len(here.Sites) > 0 || here.With(book).Nonsense || a.plan.mode == serving && book.IsDeleting() || !sameSites(a.record.Sites, book.Sites()) {
		return true
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	left := sliceDelay - time.Since(a.o.bookWritten)
	a.later = max(0, left)
	return left <= 0
}

func sameSites(a, b []record.Site) bool {
	if len(a) != len(b) {
		return false
	}
	seen := make(map[record.Site]bool, len(a))
	for _, s := range a {
		seen[s] = true
	}
	return !slices.ContainsFunc(b, func(s record.Site) bool { return !seen[s] })
}

// inSlices is the record as the owner's metadata has it once slices have the clusters.
func inSlices(r record.Record, book *record.Book) record.Record {
	r.Sites, r.Slices = nil, book.Slices()
	return r
}

// between is the record as the owner's metadata has it while slices are written: no cluster is taken from it, and no slice is
// relied on that may not be there.
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
	}
	return r
}

// entriesOf returns what slices say of clusters.
func entriesOf(sites []record.Site, results []Result) []v1alpha1.Cluster {
	entries := map[mcreconcile.ClusterName]v1alpha1.Cluster{}
	for _, r := range results {
		entries[r.Cluster] = entryOf(r)
	}
	for _, s := range sites {
		e := entries[s.Name]
		e.Name, e.MayHaveDependents = string(s.Name), true
		if s.Identity != "" {
			e.Identities = append(e.Identities, s.Identity)
		}
		entries[s.Name] = e
	}
	all := make([]v1alpha1.Cluster, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, entries[name])
	}
	return all
}

func entryOf(r Result) v1alpha1.Cluster {
	e := v1alpha1.Cluster{Name: string(r.Cluster), Targeted: r.Targeted, Error: oneline.Text(text(r.Err), longestError)}
	if r.Err != nil {
		e.Since = stamp(r.Since)
	}
	for _, o := range r.Objects {
		e.Objects = append(e.Objects, v1alpha1.Object{
			Kind: o.Kind.Kind + "." + o.Kind.Version + "." + o.Kind.Group, Namespace: o.Key.Namespace, Name: o.Key.Name, UID: o.UID,
			State: string(o.State), Error: oneline.Text(text(o.Err), longestError), Since: stamp(o.Since),
		})
	}
	return e
}

// stamp returns a time as it is stored.
func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

// sliceWatch finds the slices of owners that are gone, and those that others have deleted.
type sliceWatch struct{ *engine }

// proto is what is watched: the metadata alone.
func (sliceWatch) proto() client.Object {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("DependentSlice"))
	return meta
}

// in is an mchandler.HandlerFunc.
func (s sliceWatch) in(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	return handler.TypedFuncs[client.Object, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) {
			if req, ours := s.ownerOf(name, e.Object); ours && s.ledger.get(req) == nil {
				q.Add(req)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], _ queue) {
			if e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil {
				s.deleted(name, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], _ queue) {
			s.deleted(name, e.Object)
		},
	}
}

// deleted has slices read again if others have deleted one.
func (s sliceWatch) deleted(in mcreconcile.ClusterName, slice client.Object) {
	req, ours := s.ownerOf(in, slice)
	if o := s.ledger.get(req); ours && o != nil && o.hasSlice(slice.GetName()) {
		o.doubtBook()
		s.works.add(accountOf(req))
	}
}

// hasSlice reports whether an owner relies on a slice.
func (o *ownerState) hasSlice(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.book.Has(name)
}

// ownerOf returns the request for the owner of a slice of this controller.
func (s sliceWatch) ownerOf(name mcreconcile.ClusterName, slice client.Object) (mcreconcile.Request, bool) {
	labels, annotations := slice.GetLabels(), slice.GetAnnotations()
	req := mcreconcile.Request{ClusterName: name}
	req.NamespacedName = types.NamespacedName{
		Namespace: annotations[v1alpha1.OwnerNamespaceAnnotation], Name: annotations[v1alpha1.OwnerNameAnnotation],
	}
	return req, labels[v1alpha1.FleetLabel] == s.cfg.fleet && labels[v1alpha1.ControllerLabel] == s.cfg.name && req.Name != ""
}

// dropSlices removes the slices of an owner that is gone without the controller, once the API server has said that it is gone.
func (c *engine) dropSlices(ctx context.Context, home remote.Session, req mcreconcile.Request) error {
	if c.cfg.slices == nil || !c.access.Within(c.cfg.ownersIn, req.ClusterName) {
		return nil
	}
	owner := c.owner.NewMetadata()
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	err := home.Cluster.GetAPIReader().Get(ctx, req.NamespacedName, owner)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	if !remote.IsNotThere(err, req.Name) {
		return fmt.Errorf("finding out whether slices have an owner: %w", err)
	}
	owner.SetNamespace(req.Namespace)
	apiVersion, kind := c.owner.ToAPIVersionAndKind()
	ref := mcowner.Reference{
		Fleet: c.cfg.fleet, Manager: c.cfg.name, APIVersion: apiVersion, Kind: kind, Namespace: req.Namespace, Name: req.Name,
	}
	err = record.Remove(ctx, home.Cluster.GetAPIReader(), home.Cluster.GetClient(), ref, c.cfg.slices.namespaceFor(owner))
	if errors.Is(err, record.ErrNoKind) {
		return nil
	}
	return err
}
