package dependents

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// configuration returns the fields that a dependent is to have, with the reference to the owner.
func (p *placement) configuration(w wanted) (*unstructured.Unstructured, error) {
	namespaced, err := p.at.Cluster.GetClient().IsObjectNamespaced(w.obj)
	switch {
	case err != nil:
		return nil, err
	case w.obj.GetName() == "":
		return nil, errors.New("it has no name")
	case !namespaced && w.obj.GetNamespace() != "":
		return nil, fmt.Errorf("it has the namespace %q, and its kind has none", w.obj.GetNamespace())
	case namespaced && w.obj.GetNamespace() == "":
		return nil, errors.New("it has no namespace, and its kind is namespaced")
	case len(p.engine.cfg.namespaces) > 0 && !slices.Contains(p.engine.cfg.namespaces, w.obj.GetNamespace()):
		return nil, fmt.Errorf("it is in the namespace %q, which is not one of the controller's Namespaces", w.obj.GetNamespace())
	}
	gvk, err := apiutil.GVKForObject(w.obj, p.engine.access.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	obj := w.obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.GetObjectKind().SetGroupVersionKind(gvk)  // which the reference says
	p.disown(obj)
	if w.Keep {
		keep(obj)
	}
	if err := p.control(obj); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: withoutNulls(content)}
	u.SetGroupVersionKind(gvk)
	asStored(u)
	// The rest is the API server's.
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return u, nil
}

// disown takes from an object that is desired what says whose it is, and what it owns. It may be a copy of its owner, which may be a
// dependent itself, and have other controllers: none of that holds for the copy. Nobody would take their finalizers from it, and
// Kubernetes' garbage collector deletes what refers to an owner of another cluster.
func (p *placement) disown(obj client.Object) {
	record.Strip(obj)
	annotations := obj.GetAnnotations() // which is a copy by now
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, mcowner.KeyPrefix) ||
			key == mcowner.DesiredAnnotation || key == mcowner.CreatedByAnnotation || key == mcowner.AdoptedAnnotation
	})
	labels := maps.Clone(obj.GetLabels())
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return strings.HasPrefix(key, mcowner.KeyPrefix) || key == mcowner.FleetLabel || key == mcowner.OwnerClusterLabel
	})
	obj.SetLabels(labels)
	of := p.asked.owner.GetOwnerReferences()
	natives := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(native metav1.OwnerReference) bool {
		return slices.ContainsFunc(of, func(o metav1.OwnerReference) bool { return o.UID == native.UID })
	})
	if len(natives) == 0 {
		natives = nil // an empty list would be a field that is desired
	}
	obj.SetOwnerReferences(natives)
}

// keep notes on an object that it is to stay, unless that says something else.
func keep(obj client.Object) {
	annotations := map[string]string{}
	maps.Copy(annotations, obj.GetAnnotations())
	if annotations[DeletionPolicyAnnotation] == "" {
		annotations[DeletionPolicyAnnotation] = string(metav1.DeletePropagationOrphan)
	}
	obj.SetAnnotations(annotations)
}

// control makes the owner the controller of an object that is desired. Kubernetes' garbage collector must not know of an owner whose
// annotation lets its dependents stay, or makes no sense: it deletes them before the owner is looked at.
func (p *placement) control(obj client.Object) error {
	if err := mcowner.SetControllerReference(p.asked.ref, obj, p.at.ID); err != nil {
		return err
	}
	if said, err := saidPolicy(p.asked.owner); err != nil || said == metav1.DeletePropagationOrphan {
		obj.SetOwnerReferences(p.withoutOwn(obj.GetOwnerReferences()))
	}
	return nil
}

// withoutNulls removes the nulls that Go types without a value become.
func withoutNulls(content map[string]any) map[string]any {
	for key, value := range content {
		switch value := value.(type) {
		case nil:
			delete(content, key)
		case map[string]any:
			withoutNulls(value)
		case []any:
			for _, item := range value {
				if m, ok := item.(map[string]any); ok {
					withoutNulls(m)
				}
			}
		}
	}
	return content
}

// keepIdentities takes over from the existing reference which clusters these are, where that is not known now: the right to
// know it may be back later.
func (p *placement) keepIdentities(config *unstructured.Unstructured, existing client.Object) error {
	before, ok := existing.GetAnnotations()[p.asked.ref.Key()]
	if !ok || p.asked.ref.ClusterUID != "" && p.at.ID.UID != "" {
		return nil
	}
	annotations := config.GetAnnotations()
	annotations[p.asked.ref.Key()] = before
	config.SetAnnotations(annotations)
	return p.control(config)
}

// keepAdopted adds to the configuration of a namespace, or a CRD, that it was there before it became the owner's, if so, and is to stay: others
// may have something in it, or of it.
func (p *placement) keepAdopted(k remote.Kind, config *unstructured.Unstructured, existing client.Object) (*unstructured.Unstructured, error) {
	if !isKept(k) {
		return config, nil
	}
	_, controlled := k.ControllerOf(existing, p.at.ID)
	switch {
	case existing.GetAnnotations()[mcowner.CreatedByAnnotation] != "":
		return p.adopted(config, true)
	case remote.WasAdopted(existing) || !controlled:
		return p.adopted(config, false)
	default:
		return config, nil
	}
}

// isKept reports whether an object of a kind stays if it was there before.
func isKept(k remote.Kind) bool { return k.GroupKind() == namespaceKind || k.GroupKind() == crdKind }

// adopted returns the configuration of what was there before. A namespace that was created for dependents goes if it is empty of others, for
// which Kubernetes' garbage collector does not look: no native owner brings that to it.
func (p *placement) adopted(config *unstructured.Unstructured, created bool) (*unstructured.Unstructured, error) {
	kept := config.DeepCopy()
	annotations := kept.GetAnnotations()
	annotations[mcowner.AdoptedAnnotation] = p.engine.cfg.fleet
	if created {
		kept.SetAnnotations(annotations)
		kept.SetOwnerReferences(p.withoutOwn(kept.GetOwnerReferences()))
		return kept, nil
	}
	annotations[DeletionPolicyAnnotation] = string(metav1.DeletePropagationOrphan)
	kept.SetAnnotations(annotations)
	return kept, p.control(kept)
}

// isMarkedAnew reports whether what was applied differs from the configuration by nothing but how it says that it was there before: somebody
// has taken a mark, or put one there.
func (p *placement) isMarkedAnew(k remote.Kind, config *unstructured.Unstructured, existing client.Object) bool {
	if !isKept(k) || !p.isOwn(k, existing) {
		return false
	}
	asCreated, err := p.adopted(config, true)
	asFound, err2 := p.adopted(config, false)
	if errors.Join(err, err2) != nil {
		return false
	}
	return slices.ContainsFunc([]*unstructured.Unstructured{config.DeepCopy(), asCreated, asFound}, func(form *unstructured.Unstructured) bool {
		_, err := sealed(form)
		return err == nil && isSealedAs(existing, form)
	})
}

// sealed adds to a configuration the hash of what it was before, and whether it says that it was there before.
func sealed(config *unstructured.Unstructured) (hash, error) {
	unstructured.RemoveNestedField(config.Object, "metadata", "annotations", mcowner.DesiredAnnotation)
	content, err := json.Marshal(config.Object)
	if err != nil {
		return hash{}, err
	}
	desired := hashOf(content)
	annotations := config.GetAnnotations()
	seal := desired.String()
	if annotations[mcowner.AdoptedAnnotation] != "" {
		seal += remote.AdoptedSeal
	}
	annotations[mcowner.DesiredAnnotation] = seal
	config.SetAnnotations(annotations)
	return desired, nil
}

// isSealedAs reports whether an object was last written as a configuration that is sealed.
func isSealedAs(obj, config client.Object) bool {
	return obj.GetAnnotations()[mcowner.DesiredAnnotation] == config.GetAnnotations()[mcowner.DesiredAnnotation]
}
