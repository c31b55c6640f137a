package objects

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/packed"
)

// kept is how the cache of a watch keeps an object that is read when it has changed, and when a config is made of it: a fleet has
// many, and every replica all of them.
type kept struct {
	metav1.Object // what a cache does not ask for

	key     client.ObjectKey
	version string
	content []byte
}

var (
	_ client.Object = (*kept)(nil)

	unasked = &metav1.ObjectMeta{}
)

// GetName implements metav1.Object.
func (k *kept) GetName() string { return k.key.Name }

// GetNamespace implements metav1.Object.
func (k *kept) GetNamespace() string { return k.key.Namespace }

// GetResourceVersion implements metav1.Object.
func (k *kept) GetResourceVersion() string { return k.version }

// GetObjectKind implements runtime.Object.
func (k *kept) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It is never changed.
func (k *kept) DeepCopyObject() runtime.Object { return k }

// binary is an object that knows a shorter form than JSON, as those of Kubernetes itself do.
type binary interface {
	Marshal() ([]byte, error)
	Unmarshal(text []byte) error
}

// keep returns what is kept of an object: that itself if it cannot be written.
func keep(obj client.Object) client.Object {
	var text []byte
	var err error
	if b, ok := obj.(binary); ok {
		text, err = b.Marshal()
	} else {
		text, err = json.Marshal(obj)
	}
	if err != nil {
		return obj
	}
	return &kept{unasked, client.ObjectKeyFromObject(obj), obj.GetResourceVersion(), packed.Pack(text)}
}

// into makes obj, which is empty, the object of this kind that is kept.
func (k *kept) into(obj client.Object, kind schema.GroupVersionKind) error {
	text, err := packed.Unpack(k.content)
	if err != nil {
		return err
	}
	if b, ok := obj.(binary); ok {
		err = b.Unmarshal(text)
	} else {
		err = json.Unmarshal(text, obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return err
}
