package mcowner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// References returns the owners of an object in a cluster, of all fleets, ordered by their keys. Native owner references are
// not among them.
//
// A reference that was written to another object, and copied with its annotations, is left out: under another name, or in
// another cluster, also if that has the same name, where both UIDs are known; or in another kind, in whatever version, where both the
// reference and the object say it. Objects of Go types often do not: the kind can be set before. If one cannot be read,
// or several owners claim to be the controller, the error wraps [ErrMalformed], and nothing is returned: such an object
// belongs to nobody.
//
// A controller reference of Admiralty's multicluster-controller counts, without a fleet and a manager, so that its users
// can move: clusters must have the same names as there.
func References(dependent client.Object, in ClusterID) ([]Reference, error) {
	var all []Reference
	annotations := dependent.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, KeyPrefix) {
			continue
		}
		r, err := parse(key, annotations[key])
		if err != nil {
			return nil, fmt.Errorf("%w in the annotation %s: %w", ErrMalformed, key, err)
		}
		if r.isFor(dependent, in) {
			all = append(all, r)
		}
	}
	other, err := admiraltyReference(dependent)
	if err != nil {
		return nil, fmt.Errorf("%w in the annotation %s: %w", ErrMalformed, admiraltyAnnotation, err)
	}
	if other != nil && !slices.ContainsFunc(all, other.Same) {
		all = append(all, *other)
	}
	if _, err := controllerOf(all); err != nil {
		return nil, err
	}
	return all, nil
}

// ControllerOf returns the controller of an object in a cluster. The answer is false if it has none, or if its
// references cannot be read.
func ControllerOf(dependent client.Object, in ClusterID) (controller Reference, ok bool) {
	references, err := References(dependent, in)
	if err != nil {
		return Reference{}, false
	}
	r, err := controllerOf(references)
	if err != nil || r == nil {
		return Reference{}, false
	}
	return *r, true
}

func controllerOf(references []Reference) (*Reference, error) {
	var controller *Reference
	for i, r := range references {
		if !r.Controller {
			continue
		}
		if controller != nil {
			return nil, fmt.Errorf("%w: both %s and %s claim to be the controller", ErrMalformed, controller, r)
		}
		controller = &references[i]
	}
	return controller, nil
}

// parse reads the content of an annotation. The key proves that nobody has changed the owner in it by hand.
func parse(key, content string) (Reference, error) {
	var r Reference
	if err := json.Unmarshal([]byte(content), &r); err != nil {
		return Reference{}, err
	}
	if err := r.validate(); err != nil {
		return Reference{}, err
	}
	if r.Key() != key {
		return Reference{}, fmt.Errorf("it is of %s, whose key is %s", r, r.Key())
	}
	return r, nil
}

// isFor reports whether the reference was written to this object, not to one of which it is a copy.
func (r Reference) isFor(dependent client.Object, in ClusterID) bool {
	d, is := r.Dependent, locate(dependent, in)
	return d.Cluster == is.Cluster && !Differ(d.ClusterUID, is.ClusterUID) && !d.isOfAnotherKind(is) &&
		d.Namespace == is.Namespace && (d.Name == "" || d.Name == is.Name)
}

// isOfAnotherKind reports whether it is known that two objects are of different kinds.
func (l Location) isOfAnotherKind(other Location) bool {
	return l.Kind != "" && other.Kind != "" && (l.Kind != other.Kind || l.Group != other.Group)
}

func hasKey(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, KeyPrefix) {
			return true
		}
	}
	return false
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func without(m map[string]string, key string) map[string]string {
	m = maps.Clone(m)
	delete(m, key)
	return m
}
