package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ErrNoKind says that a cluster with owners does not have the CRD of slices.
var ErrNoKind = errors.New("the cluster does not serve DependentSlices: install the manifest that v1alpha1.CRD returns")

// ErrOutdated says that slices are not as they were thought to be. Read them again.
var ErrOutdated = errors.New("slices were changed by others")

// errNoPlace says that slices cannot be made where they are to be.
var errNoPlace = errors.New("its namespace, or its kind, is not there")

// atOnce is how many slices are read at once: each may have 1.5 MB, if somebody has written that.
const atOnce = 10

// mostSlices and mostRead are how many slices of an owner, and bytes of them, are read. Beyond that, somebody else has made them.
const (
	mostSlices = 1000
	mostRead   = 256 << 20
)

// Load reads the slices of an owner from the API server, and what they say of clusters. said is what the owner says of them. Those
// of an owner in a namespace are there, whatever it says.
func Load(ctx context.Context, from client.Reader, owner mcowner.Reference, said Slices) (*Book, []v1alpha1.Cluster, error) {
	b := NewBook(owner, cmp.Or(owner.Namespace, said.Namespace))
	var clusters []v1alpha1.Cluster
	read := 0
	err := each(ctx, from, b.of, func(s *unstructured.Unstructured, number int) bool {
		p, has := pageOf(s, owner, slices.Contains(said.Numbers, number))
		b.pages[number] = p
		clusters = append(clusters, has...)
		read += p.size
		b.absent = b.absent || len(b.pages) >= mostSlices || read >= mostRead
		return !b.absent
	})
	for _, number := range said.Numbers {
		_, there := b.pages[number]
		b.absent = b.absent || !there
	}
	return b, clusters, err
}

// each calls do with the slices of an owner, and their numbers, until it returns false. What others have given its label has another
// name, and is left out.
func each(ctx context.Context, from client.Reader, of shelf, do func(s *unstructured.Unstructured, number int) bool) error {
	for token, more := "", true; more; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind + "List"))
		err := from.List(ctx, list, client.InNamespace(of.namespace), client.MatchingLabels{v1alpha1.OwnerLabel: of.owner},
			client.Limit(atOnce), client.Continue(token))
		if apierrors.IsNotFound(err) { // for callers, not found is about the owner
			err = fmt.Errorf("%w: %v", ErrNoKind, err) //nolint:errorlint // see above
		}
		if err != nil {
			return fmt.Errorf("reading the slices of an owner: %w", unserved(err))
		}
		for i := range list.Items {
			s := &list.Items[i]
			if number, ours := of.number(s.GetName()); ours && !do(s, number) {
				return nil
			}
		}
		token = list.GetContinue()
		more = token != ""
	}
	return nil
}

// unserved marks errors that say that the kind is not there.
func unserved(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %w", ErrNoKind, err)
	}
	return err
}

// pageOf reads a slice, and what it says of clusters. One of an earlier owner of the name is not this one's record, unless this one
// says so.
func pageOf(s *unstructured.Unstructured, owner mcowner.Reference, said bool) (page, []v1alpha1.Cluster) {
	p := page{uid: s.GetUID(), version: s.GetResourceVersion(), deleting: s.GetDeletionTimestamp() != nil}
	read := &v1alpha1.DependentSlice{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.Object, read)
	if err == nil && read.Owner.UID != owner.UID && !said {
		p.foreign = true
		return p, nil
	}
	p.strange = err != nil
	var leaves []leaf
	var fit []v1alpha1.Cluster
	for _, c := range read.Clusters {
		content, _ := json.Marshal(c) //nolint:errchkjson // it was JSON before
		leaves = append(leaves, leaf{c, content})
		if !IsName(mcreconcile.ClusterName(c.Name)) {
			p.strange = true
			continue
		}
		p.names, p.sites = append(p.names, c.Name), append(p.sites, SitesOf([]v1alpha1.Cluster{c})...)
		if len(content) <= DefaultBytes/2 { // others have written more
			fit = append(fit, c)
		}
	}
	p.size = size(leaves)
	if !p.strange && read.Owner.UID == owner.UID {
		p.hash = hashOf(leaves)
	}
	return p, fit
}

// Write makes the slices as they are laid out. It returns what is known to be there then, also with an error. The error wraps
// [ErrOutdated] if the slices are to be read again first.
func (b *Book) Write(ctx context.Context, to client.Client, layout Layout, fieldManager string) (*Book, error) {
	now := &Book{of: b.of, ref: b.ref, pages: maps.Clone(b.pages), absent: b.absent, lost: b.lost}
	for _, number := range layout.order() {
		written, err := b.writePage(ctx, to, number, layout.pages[number], fieldManager)
		if err != nil {
			return now, err
		}
		now.pages[number] = written
	}
	for number, p := range b.pages {
		if _, stays := layout.pages[number]; stays {
			continue
		}
		if err := remove(ctx, to, b.empty(number, p)); err != nil {
			return now, err
		}
		delete(now.pages, number)
	}
	now.absent, now.lost = false, nil
	return now, nil
}

// writePage writes a slice, unless that changes nothing.
func (b *Book) writePage(ctx context.Context, to client.Client, number int, leaves []leaf, fieldManager string) (page, error) {
	before, there := b.pages[number]
	hash := hashOf(leaves)
	if there && before.hash == hash { // one that cannot be read has none
		return before, nil
	}
	s := b.empty(number, before)
	clusters := make([]v1alpha1.Cluster, len(leaves))
	names := make([]string, len(leaves))
	for i, l := range leaves {
		clusters[i], names[i] = l.Cluster, l.Name
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.DependentSlice{Owner: b.ownerNamed(), Clusters: clusters})
	if err != nil {
		return page{}, fmt.Errorf("writing slice %s: %w", s.GetName(), err)
	}
	s.Object["owner"], s.Object["clusters"] = content["owner"], content["clusters"]
	if there {
		err = to.Update(ctx, s, client.FieldOwner(fieldManager))
	} else {
		err = create(ctx, to, s, fieldManager)
	}
	if err != nil {
		return page{}, fmt.Errorf("writing slice %s: %w", s.GetName(), outdated(unserved(err)))
	}
	return page{
		uid: s.GetUID(), version: s.GetResourceVersion(), deleting: s.GetDeletionTimestamp() != nil,
		sites: SitesOf(clusters), names: names, hash: hash,
	}, nil
}

// create makes a slice. One that was not found, and is there, has lost its label, and gets it back.
func create(ctx context.Context, to client.Client, s *unstructured.Unstructured, fieldManager string) error {
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.OwnerLabel, s.GetLabels()[v1alpha1.OwnerLabel])
	err := to.Create(ctx, s, client.FieldOwner(fieldManager))
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %v", errNoPlace, err) //nolint:errorlint // for callers, not found is about the owner
	case apierrors.IsAlreadyExists(err):
		return errors.Join(err, client.IgnoreNotFound(to.Patch(ctx, s, client.RawPatch(types.MergePatchType, label))))
	}
	return err
}

func (b *Book) ownerNamed() v1alpha1.Owner {
	return v1alpha1.Owner{APIVersion: b.ref.APIVersion, Kind: b.ref.Kind, Namespace: b.ref.Namespace, Name: b.ref.Name, UID: b.ref.UID}
}

// empty returns a slice without its clusters. A new one has no resource version.
func (b *Book) empty(number int, p page) *unstructured.Unstructured {
	s := &unstructured.Unstructured{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	s.SetNamespace(b.of.namespace)
	s.SetName(b.of.name(number))
	s.SetUID(p.uid)
	s.SetResourceVersion(p.version)
	s.SetFinalizers([]string{v1alpha1.Finalizer})
	s.SetLabels(map[string]string{
		v1alpha1.OwnerLabel: b.of.owner, v1alpha1.FleetLabel: b.ref.Fleet, v1alpha1.ControllerLabel: b.ref.Manager,
	})
	s.SetAnnotations(map[string]string{v1alpha1.OwnerNamespaceAnnotation: b.ref.Namespace, v1alpha1.OwnerNameAnnotation: b.ref.Name})
	return s
}

// outdated marks errors that say that a slice is not as it was thought to be.
func outdated(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %v", ErrOutdated, err) //nolint:errorlint // for callers, not found and conflict are about the owner
	}
	return err
}

// remove deletes a slice, whoever has changed it since, and takes the finalizer from it.
func remove(ctx context.Context, to client.Client, s *unstructured.Unstructured) error {
	uid := s.GetUID()
	err := to.Delete(ctx, s, client.Preconditions{UID: &uid})
	if err == nil {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, uid)
		err = to.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch))
	}
	if notfound.Ignore(err, s.GetName()) != nil {
		return fmt.Errorf("removing slice %s: %w", s.GetName(), outdated(err))
	}
	return nil
}

// Namespaces returns where a cache of the metadata of slices has some of an owner.
func Namespaces(ctx context.Context, cached client.Reader, owner mcowner.Reference) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind + "List"))
	of := shelfOf(owner, "")
	if err := cached.List(ctx, list, client.MatchingLabels{v1alpha1.OwnerLabel: of.owner}); err != nil {
		return nil, fmt.Errorf("finding the slices of an owner: %w", unserved(err))
	}
	found := map[string]bool{}
	for i := range list.Items {
		if _, ours := of.number(list.Items[i].Name); ours {
			found[list.Items[i].Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Remove removes the slices of an owner that is gone.
func Remove(ctx context.Context, from client.Reader, to client.Client, owner mcowner.Reference, namespace string) error {
	var errs []error
	err := each(ctx, from, shelfOf(owner, namespace), func(s *unstructured.Unstructured, _ int) bool {
		errs = append(errs, remove(ctx, to, s))
		return true
	})
	return errors.Join(append(errs, err)...)
}
