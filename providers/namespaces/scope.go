package namespaces

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
)

// ErrOutside is what a member answers that is asked to read or write beyond its namespace. Errors that wrap it say what
// was asked for. Trying again does not help.
var ErrOutside = errors.New("outside the member's namespace")

// scope is where the objects of a kind are, as a member sees it.
type scope int

const (
	namespaced  scope = iota // in namespaces: the member sees those in its own
	itself                   // the kind Namespace: the member sees its own
	clusterWide              // without namespaces: the member sees all, and changes none
)

// scopeOf returns the scope of the kind of an object or a list.
func (s *shared) scopeOf(obj runtime.Object) (scope, schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, s.cluster.GetScheme())
	if err != nil {
		return 0, gvk, err
	}
	if _, isList := obj.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	where, err := s.scopeOfKind(gvk)
	return where, gvk, err
}

func (s *shared) scopeOfKind(gvk schema.GroupVersionKind) (scope, error) {
	if gvk.GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		return itself, nil
	}
	inNamespaces, err := apiutil.IsGVKNamespaced(gvk, s.cluster.GetRESTMapper())
	if err != nil {
		return 0, fmt.Errorf("finding out whether %s is in namespaces: %w", gvk.GroupKind(), err)
	}
	if inNamespaces {
		return namespaced, nil
	}
	return clusterWide, nil
}

// confine returns an error that wraps ErrOutside unless a namespace is the member's, or left open, and a name leads to nothing else.
func (m member) confine(gvk schema.GroupVersionKind, namespace, name string) error {
	if err := m.confineName(gvk, name); err != nil || namespace == "" || namespace == m.namespace {
		return err
	}
	return fmt.Errorf("%s %s in namespace %q: %w %q", gvk.GroupKind(), cmp.Or(name, "objects"), namespace, ErrOutside, m.namespace)
}

// confineName returns an error that wraps ErrOutside if a request for the name of an object would be one for something else.
func (m member) confineName(gvk schema.GroupVersionKind, name string) error {
	if err := paths.CheckNames("", name); err != nil {
		return fmt.Errorf("%s: %w %q: %w", gvk.GroupKind(), ErrOutside, m.namespace, err)
	}
	return nil
}
