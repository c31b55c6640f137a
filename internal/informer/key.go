package informer

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Key tells informers apart as controller-runtime does: it has three for each kind.
type Key struct {
	GVK  schema.GroupVersionKind
	form string
}

// The forms that an object of a kind has in Go.
const (
	unstructuredForm = "unstructured"
	metadataForm     = "metadata"
	structuredForm   = "structured"
)

// Object returns an empty object of the kind.
func (k Key) Object(scheme *runtime.Scheme) (client.Object, error) {
	switch k.form {
	case unstructuredForm:
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	case metadataForm:
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	}
	made, err := scheme.New(k.GVK)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	return obj, nil
}

// KeyOf returns the kind of an object or a list.
func KeyOf(obj runtime.Object, scheme *runtime.Scheme) (Key, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return Key{}, err
	}
	if _, isList := obj.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	switch obj.(type) {
	case runtime.Unstructured:
		return Key{gvk, unstructuredForm}, nil
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return Key{gvk, metadataForm}, nil
	default:
		return Key{gvk, structuredForm}, nil
	}
}
