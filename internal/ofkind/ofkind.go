// Package ofkind says of which kind an object is that does not say it itself, as objects of Go types often do not.
package ofkind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object returns an object that says that it is of a kind, whatever obj says, and is obj otherwise. With no kind, it says none. It is for
// what asks an object for its kind: clients and schemes do not know its type. obj itself, which may be a cache's, is not changed.
func Object(kind schema.GroupVersionKind, obj client.Object) client.Object {
	said := &metav1.TypeMeta{}
	said.SetGroupVersionKind(kind)
	return object{obj, said}
}

type object struct {
	client.Object

	said *metav1.TypeMeta
}

// GetObjectKind implements runtime.Object.
func (o object) GetObjectKind() schema.ObjectKind { return o.said }
