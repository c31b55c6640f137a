// Package objects is the engine of providers whose clusters are described by objects in the local cluster: labelled
// Secrets, Clusters of Cluster API, ClusterProfiles, namespaces. A provider on this engine says which objects, and how
// one becomes members; watching, conflicts, retries, removals and events are done here.
//
// The engine watches with caches of its own, limited at the server by label and namespace. The manager needs the rights
// to get, list and watch the objects in these namespaces, and to create and patch events (of events.k8s.io). What is
// wrong shows as an event on the object, and, where no member shows it, as a [fleet.Problem].
package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Provider is a [fleet.Provider] whose members are described by objects of one kind in the local cluster.
//
// If several objects describe a member of the same name, the oldest has it (by creation, then by namespace and name).
// The others get an event and a [fleet.Problem], and the next of them takes over when the first lets go.
//
// An object that is deleted takes its members with it at once, unless it has the finalizer [LeaveFinalizer]: then they leave
// well, and the finalizer is removed when they have left. Its names are kept for it for ten seconds, so that a tool that
// replaces it, by deleting it and creating it under the same namespace and name, does not lose them to a duplicate that
// waits. The new object is then as old as the one before, for as long as the process runs. A process that starts later knows
// the times of creation alone: there the duplicate is the older. So a duplicate is to be removed, and not to be left
// waiting.
//
// Objects are described side by side, so a slow one holds up no other. What an object says is that object's affair: a
// panic, a call that takes longer than Timeout, or too many members show as its problem.
type Provider[T client.Object] struct {
	// Name tells providers apart in logs, and is the controller "fleet-runtime.dev/NAME" in events.
	// Default: "objects".
	Name string

	// Object is an empty object of the kind to watch, such as &corev1.Secret{}. The scheme must know the kind. Required.
	Object T

	// Scheme knows the kinds of Object and Also.
	// Default: the local cluster's scheme.
	Scheme *runtime.Scheme

	// Selectors say which objects to watch: those that match at least one of them. Each is a watch of its own.
	// Default: all objects.
	Selectors []labels.Selector

	// Namespaces says where to watch. Leave it empty for kinds without namespaces.
	// Default: in all namespaces.
	Namespaces []string

	// NamespaceSelector says from which namespaces objects count: from those whose labels match it, now. It is for
	// kinds that have namespaces, and not to be combined with Namespaces. All objects are watched nevertheless, and the
	// manager needs the rights to list and watch namespaces.
	// Default: objects of all namespaces count.
	NamespaceSelector labels.Selector

	// MaxMembers is how many members one object may describe. Of more, the first by name count. A negative number means
	// that there is no limit.
	// Default: 100.
	MaxMembers int

	// Timeout bounds one call of Members. What takes longer is tried again, with increasing delays. A call that has not
	// returned after it goes on beside the others; of those there may be 32, and when there are more, discovery waits.
	// Default: 10 seconds.
	Timeout time.Duration

	// Members returns the members that obj describes; others that it described before are removed. Members is called
	// when obj has changed, or an object in Also that belongs to it, and for the Config of a member with a Revision, which the fleet
	// gets when it connects the member. obj is a copy, without managed fields. also reads
	// the objects that Also names, and no others. Required.
	//
	// Members of an object with a namespace have the label [NamespaceLabel], whatever Members says.
	//
	// What is wrong with one member goes into [fleet.Member.Err]. An error that wraps [ErrNone] says that obj describes
	// no member, and why. After any other error the members stay as they are, and Members is called again, with
	// increasing delays. All of these become events on obj, so none may carry secrets; an error with the method
	// Reason() string chooses the reason of its event. Members is also called again if it asked also for what is not
	// listed yet.
	//
	// Calls for different objects run side by side, those for one object follow each other. Members must not wait for
	// anything remote. Its ctx ends after Timeout.
	Members func(ctx context.Context, obj T, also Reader) ([]fleet.Member, error)

	// Gone is called for each object that is deleted, or does not count any more, after the calls of Members for it, and
	// possibly again. It is for what Members keeps. Calls run side by side as those of Members do, and must not wait.
	// Default: nothing is called.
	Gone func(key client.ObjectKey)

	// Also says what else the members are made of, such as the Secret beside a Cluster: one entry for each kind.
	// Default: nothing.
	Also []Also
}

// Also says which objects of a second kind members are made of.
type Also struct {
	// Object is an empty object of the kind to watch. Required.
	Object client.Object

	// Selector says which objects to watch. Default: all.
	Selector labels.Selector

	// Namespaces says where to watch. Default: in the namespaces of the provider.
	Namespaces []string

	// Trim takes from an object what neither Keys nor Members needs, before it is kept. It may be called concurrently.
	// Default: nothing is taken.
	Trim func(obj client.Object)

	// Keys returns the keys of the provider's own objects to which obj belongs; those that it does not watch count for
	// nothing. It decides by obj alone, and so is given no [Reader]: what other objects say may have changed by the time that
	// obj is deleted. Where obj does not tell, label it, or name it after its owner. Keys may be called concurrently, and must
	// not change obj. Required.
	Keys func(obj client.Object) []client.ObjectKey
}

// Reader reads objects that a provider watches.
type Reader interface {
	// Get reads an object. It returns a NotFound error of the API if there is none.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error

	// List reads the objects of one namespace, which opts names. They come in no particular order.
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// ErrNone says that an object describes no member.
var ErrNone = errors.New("no member is described")

// NamespaceLabel is the label of a member with the namespace of the object that describes it. No object can set it.
const NamespaceLabel = "fleet-runtime.dev/namespace"

// reservedLabels begin the names of labels that say where a member comes from, or what a provider knows of it.
const reservedLabels = "fleet-runtime.dev/"

// Unreserved returns the labels of an object that its members may have: without those that begin with fleet-runtime.dev/.
// These are for the provider to set, since whoever writes the object could claim a project that is not theirs.
func Unreserved(labels map[string]string) map[string]string {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(name, _ string) bool { return strings.HasPrefix(name, reservedLabels) })
	return own
}

const (
	defaultMaxMembers = 100
	defaultTimeout    = 10 * time.Second
)

// Run implements [fleet.Provider]. It returns an error only for a provider that can never work, such as one for a kind
// that the scheme does not know. While a kind is not served, or may not be watched, that is a [fleet.Problem], and Run
// goes on trying. A call of Members that does not heed its context is left behind when Run returns.
func (p Provider[T]) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if p.Scheme != nil {
		local = withScheme{local, p.Scheme}
	}
	if err := p.validate(local.GetScheme()); err != nil {
		return err
	}
	p.Name = cmp.Or(p.Name, "objects")
	p.MaxMembers = cmp.Or(p.MaxMembers, defaultMaxMembers)
	p.Timeout = cmp.Or(p.Timeout, defaultTimeout)
	ctx = logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("provider", p.Name))
	w, err := newWorker(p, local, members)
	if err != nil {
		return err
	}

	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx) // so that nothing is waited for that goes on
	defer cancel()
	running.Go(func() {
		<-ctx.Done()
		w.shutDown()
	})
	own, also, namespaces := p.scopes(w.seen.in)
	opened, err := openAll(ctx, local, slices.Concat(own, also, namespaces), w.troubles, w.enqueue)
	if err != nil {
		return nil // ctx is done
	}
	for _, watch := range opened {
		running.Go(func() { watch.run(ctx) })
	}
	// With all that exists in the queue before the work begins, the oldest claimant of a name is known before the name
	// is reported. A watch that the server refuses holds nothing up.
	for _, watch := range opened {
		watch.waitForAnswer(ctx)
	}
	scheme := local.GetScheme()
	w.own = watches{scheme, opened[:len(own)]}
	w.also = watches{scheme, opened[len(own) : len(own)+len(also)]}
	w.namespaces = watches{scheme, opened[len(own)+len(also):]}
	w.work(ctx)
	return nil
}

// withScheme is a cluster to which another scheme belongs.
type withScheme struct {
	cluster.Cluster
	scheme *runtime.Scheme
}

func (c withScheme) GetScheme() *runtime.Scheme { return c.scheme }

// scopes returns what to watch: the provider's own objects, those in Also, and the namespaces if these matter. objectsIn
// returns the keys of the own objects in a namespace.
func (p Provider[T]) scopes(objectsIn func(namespace string) []client.ObjectKey) (own, also, namespaces []scope) {
	selectors, where := p.Selectors, p.Namespaces
	if len(selectors) == 0 {
		selectors = []labels.Selector{nil}
	}
	if len(where) == 0 {
		where = []string{metav1.NamespaceAll}
	}
	itself := func(obj client.Object) []client.ObjectKey { return []client.ObjectKey{client.ObjectKeyFromObject(obj)} }
	for _, namespace := range where {
		for _, selector := range selectors {
			own = append(own, scope{object: p.Object, selector: selector, namespace: namespace, keys: itself, packed: true})
		}
	}
	for _, a := range p.Also {
		in := where
		if len(a.Namespaces) > 0 {
			in = a.Namespaces
		}
		for _, namespace := range in {
			also = append(also, scope{object: a.Object, selector: a.Selector, namespace: namespace, keys: a.Keys, trim: a.Trim})
		}
	}
	if p.NamespaceSelector != nil {
		keys := func(namespace client.Object) []client.ObjectKey { return objectsIn(namespace.GetName()) }
		namespaces = []scope{{object: aNamespace(), selector: p.NamespaceSelector, namespace: metav1.NamespaceAll, keys: keys}}
	}
	return own, also, namespaces
}

// aNamespace returns an empty namespace, of which the metadata is enough.
func aNamespace() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

func (p Provider[T]) watchesIn(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace) ||
		slices.Contains(p.Namespaces, metav1.NamespaceAll)
}

func (p Provider[T]) validate(scheme *runtime.Scheme) error {
	if p.Members == nil {
		return errors.New("providers/objects: set Provider.Members")
	}
	if p.NamespaceSelector != nil && len(p.Namespaces) > 0 {
		return errors.New("providers/objects: set either Provider.NamespaceSelector or Provider.Namespaces")
	}
	if _, err := kindOf("Provider.Object", p.Object, scheme); err != nil {
		return err
	}
	seen := map[schema.GroupVersionKind]bool{}
	for _, also := range p.Also {
		gvk, err := kindOf("Also.Object", also.Object, scheme)
		switch {
		case err != nil:
			return err
		case also.Keys == nil:
			return fmt.Errorf("providers/objects: set Also.Keys of %s", gvk.Kind)
		case seen[gvk]:
			return fmt.Errorf("providers/objects: %s is in Provider.Also twice", gvk.Kind)
		}
		seen[gvk] = true
	}
	return nil
}

func kindOf(field string, obj client.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return schema.GroupVersionKind{}, fmt.Errorf("providers/objects: set %s", field)
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return gvk, fmt.Errorf("providers/objects: %s: look for %T in the scheme: %w", field, obj, err)
	}
	return gvk, nil
}
