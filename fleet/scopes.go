package fleet

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scopes is the REST mapper with which a cache is made. A cache asks for the scope of each kind in its option ByObject, and
// could not be made for a member that does not serve one of them. Until made is set, such a kind counts as namespaced,
// which limits nothing for one that turns out not to be: its objects are in no namespace.
type scopes struct {
	meta.RESTMapper
	made atomic.Bool
}

// RESTMapping implements meta.RESTMapper.
func (s *scopes) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := s.RESTMapper.RESTMapping(kind, versions...)
	if err != nil && !s.made.Load() {
		return &meta.RESTMapping{Scope: meta.RESTScopeNamespace}, nil
	}
	return mapping, err
}
