package remote

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/ofkind"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// Kind is one of those that a controller works on.
type Kind struct {
	schema.GroupVersionKind

	Proto client.Object // as the user gave it: its type says which cache is read
}

// KindsOf returns the kinds of objects, which are of types of the scheme or know their kind.
func KindsOf(protos []client.Object, scheme *runtime.Scheme) ([]Kind, error) {
	kinds := make([]Kind, len(protos))
	for i, proto := range protos {
		gvk, err := apiutil.GVKForObject(proto, scheme)
		if err != nil {
			return nil, err
		}
		kinds[i] = Kind{gvk, proto}
	}
	return kinds, nil
}

// Untyped returns a kind whose objects are read without a type.
func Untyped(gvk schema.GroupVersionKind) Kind {
	proto := &unstructured.Unstructured{}
	proto.SetGroupVersionKind(gvk)
	return Kind{gvk, proto}
}

// NewObject returns an empty object.
func (k Kind) NewObject() client.Object {
	obj := k.Proto.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

// NewList returns an empty list of objects.
func (k Kind) NewList(scheme *runtime.Scheme) (client.ObjectList, error) {
	gvk := k.GroupVersionKind
	gvk.Kind += "List"
	switch k.Proto.(type) {
	case runtime.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil //nolint:forcetypeassert // the list of an object is one
}

// NewMetadata returns an empty object without all but its metadata.
func (k Kind) NewMetadata() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

// Of returns the kind in the version in which an object of it was read, which objects of a type do not say.
func (k Kind) Of(obj client.Object) Kind {
	if read := obj.GetObjectKind().GroupVersionKind(); read.GroupKind() == k.GroupKind() && read.Version != k.Version && read.Version != "" {
		return Untyped(read)
	}
	return k
}

// Describe names an object, for messages.
func (k Kind) Describe(obj client.Object) string {
	return k.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/")
}

// References returns the owners of an object of the kind in a cluster, and leaves out those of an object of another kind of which it is
// a copy. The object need not say its kind.
func (k Kind) References(obj client.Object, in mcowner.ClusterID) ([]mcowner.Reference, error) {
	return mcowner.References(ofkind.Object(k.GroupVersionKind, obj), in)
}

// ControllerOf returns the controller among the References of an object of the kind, and false if there is none.
func (k Kind) ControllerOf(obj client.Object, in mcowner.ClusterID) (mcowner.Reference, bool) {
	return mcowner.ControllerOf(ofkind.Object(k.GroupVersionKind, obj), in)
}

// IsUnserved reports whether the cluster says that it does not serve the kind. What was known of its kinds may be of a time
// when it did.
func (k Kind) IsUnserved(at Session) bool {
	mapper := at.Cluster.GetRESTMapper()
	meta.MaybeResetRESTMapper(mapper)
	_, err := mapper.RESTMapping(k.GroupKind(), k.Version)
	return meta.IsNoMatchError(err)
}
