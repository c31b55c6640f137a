package mcowner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	// FleetLabel is on every dependent. Its value is [Reference.Fleet].
	FleetLabel = "fleet-runtime.dev/fleet"

	// OwnerClusterLabel is on every dependent. Its value names the cluster of the controller, or of one of the owners if there is no
	// controller, see [OwnerClusterValue]. By it the dependents of all owners of a cluster can be selected, such as one that is
	// gone for good. What several owners share, such as a namespace, has the label of one of them.
	OwnerClusterLabel = "fleet-runtime.dev/owner-cluster"

	// DeletionPolicyAnnotation on a dependent says Orphan, as in metav1.DeletionPropagation, if it is to stay when its owner
	// goes, or no longer desires it. On an owner it says what becomes of all its dependents, see package dependents.
	DeletionPolicyAnnotation = "fleet-runtime.dev/deletion-policy"

	// DesiredAnnotation on a dependent has a hash of what was desired when it was written last, and repeats AdoptedAnnotation. Package
	// dependents writes it.
	DesiredAnnotation = "fleet-runtime.dev/desired"

	// CreatedByAnnotation is on a namespace that was created for dependents. Its value is [Reference.Fleet]. Such a namespace is
	// deleted with its last owner, if it is empty of others. So is one that its owner has desired itself, and only needs now, which has
	// [Reference.Manager] after a slash besides. Package dependents writes it.
	CreatedByAnnotation = "fleet-runtime.dev/created-by"

	// AdoptedAnnotation is on a namespace, or a CRD, that was there before an owner desired it. Its value is [Reference.Fleet]. Such a one
	// stays when its owner goes, unless CreatedByAnnotation is there too, and says DeletionPolicyAnnotation: others may have something in it.
	// Package dependents writes all three.
	AdoptedAnnotation = "fleet-runtime.dev/adopted"

	// KeyPrefix begins [Reference.Key].
	KeyPrefix = "owner.fleet-runtime.dev/"
)

// Reference says to whom a dependent belongs. It is a value: [ReferenceTo] makes one, [SetControllerReference] writes it
// to a dependent, and [References] reads it.
type Reference struct {
	// Fleet is the name of the installation that the dependent belongs to. Two installations that work on the same
	// clusters have different names, and so leave each other's dependents alone. It is a DNS label, the same in all
	// replicas and after each restart. It is empty in a reference that another system has written.
	Fleet string `json:"fleet,omitempty"`

	// Manager is the controller that looks after the dependent, a DNS label. Two controllers that have dependents of the
	// same owner and kind tell them apart by it. It may be empty.
	Manager string `json:"manager,omitempty"`

	// Cluster is the owner's cluster, by its name in the fleet. It is empty for the local cluster.
	Cluster mcreconcile.ClusterName `json:"cluster,omitempty"`

	// ClusterUID tells the owner's cluster from another one that has its name later, or by mistake, see [ClusterID]. If it
	// is empty, only the name counts.
	ClusterUID types.UID `json:"clusterUID,omitempty"` //nolint:tagliatelle // as Kubernetes writes it

	// What follows identifies the owner in its cluster. Namespace is empty if the owner is not in one.
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`

	// Controller says that the owner is the one that decides what the dependent looks like. At most one owner is.
	Controller bool `json:"controller,omitempty"`

	// Dependent is the object that the reference was written to. A copy of it elsewhere, such as one restored from a
	// backup in another cluster, or one of another kind, has the same annotation, and is nobody's dependent.
	Dependent Location `json:"dependent,omitzero"`
}

// Location is where an object is, and what. Name is empty for one that was given its name by the API server.
type Location struct {
	Cluster mcreconcile.ClusterName `json:"cluster,omitempty"`
	// ClusterUID tells the cluster from another one of its name, as that of the [Reference] does for the owner's.
	ClusterUID types.UID `json:"clusterUID,omitempty"` //nolint:tagliatelle // as Kubernetes writes it
	// Group and Kind are the object's. Kind is empty if they are not known, as in references of before it was written there.
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Differ reports whether two identities are known to be those of different clusters. An empty one is unknown, and differs
// from none.
func Differ(a, b types.UID) bool { return a != "" && b != "" && a != b }

// ErrInvalid is returned for a [Reference] that cannot be written; the error that wraps it says what to change.
var ErrInvalid = errors.New("invalid owner reference")

// ReferenceTo returns a reference to an owner that exists in a cluster, for an installation, see [Reference.Fleet]. It
// returns an error that wraps [ErrInvalid] if the owner has no UID, a name is no DNS label, or it is not said which cluster it
// is.
func ReferenceTo(fleet string, in ClusterID, owner client.Object, scheme *runtime.Scheme) (Reference, error) {
	gvk, err := apiutil.GVKForObject(owner, scheme)
	if err != nil {
		return Reference{}, fmt.Errorf("referring to an owner: %w", err)
	}
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	r := Reference{
		Fleet: fleet, Cluster: in.Name, ClusterUID: in.UID, APIVersion: apiVersion, Kind: kind,
		Namespace: owner.GetNamespace(), Name: owner.GetName(), UID: owner.GetUID(),
	}
	if err := in.validate(); err != nil {
		return r, err
	}
	return r, r.validate()
}

// OwnerClusterValue returns the value of [OwnerClusterLabel] for a cluster: its name, or, if that is no value of a label, a
// shorter one that [UniqueName] makes. It is empty for the local cluster.
func OwnerClusterValue(name mcreconcile.ClusterName) string {
	if len(validation.IsValidLabelValue(string(name))) > 0 {
		return UniqueName(validation.LabelValueMaxLength, string(name))
	}
	return string(name)
}

// validate returns an error that wraps ErrInvalid for a reference that must not be written.
func (r Reference) validate() error {
	if len(validation.IsDNS1123Label(r.Fleet)) > 0 {
		return fmt.Errorf("%w to %s: the fleet's name %.64q is not a DNS label", ErrInvalid, r, r.Fleet)
	}
	if r.Manager != "" && len(validation.IsDNS1123Label(r.Manager)) > 0 {
		return fmt.Errorf("%w to %s: the manager's name %.64q is not a DNS label", ErrInvalid, r, r.Manager)
	}
	if err := r.named(); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrInvalid, r, err)
	}
	return nil
}

// The longest that API servers take, in bytes, but for names that are not meant for owners, such as those of roles.
const (
	longestName      = validation.DNS1123SubdomainMaxLength
	longestNamespace = validation.DNS1123LabelMaxLength
)

var errIncomplete = errors.New("the owner needs an apiVersion, a kind, a name, and a UID, which it has once it was created")

// named returns why the reference names no owner, nil if it does. Whoever asks for the owner has its namespace and name in the path of the
// request.
func (r Reference) named() error {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || gv.Version == "" || r.Kind == "" || r.Name == "" || r.UID == "" {
		return errIncomplete
	}
	if len(r.Name) > longestName || len(r.Namespace) > longestNamespace {
		return fmt.Errorf("a name has %d bytes at most, and a namespace %d", longestName, longestNamespace)
	}
	return paths.CheckNames(r.Namespace, r.Name)
}

// GroupKind returns the owner's kind.
func (r Reference) GroupKind() schema.GroupKind {
	gv, _ := schema.ParseGroupVersion(r.APIVersion) // what is not valid is refused before
	return schema.GroupKind{Group: gv.Group, Kind: r.Kind}
}

// NamespacedName returns the owner's key in its cluster.
func (r Reference) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// Request returns the request for the owner.
func (r Reference) Request() mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: r.Cluster}
	req.NamespacedName = r.NamespacedName()
	return req
}

// Key is the key of the annotation and of the label that dependents of this owner have, for this fleet and manager:
// [KeyPrefix] and a hash, since names are longer than labels may be. The UID is not part of it: an owner that was
// created anew has the key of the one before.
func (r Reference) Key() string {
	gk := r.GroupKind()
	parts := []string{r.Fleet, r.Manager, string(r.Cluster), gk.Group, gk.Kind, r.Namespace, r.Name}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts)) // quoted, so that no other parts look the same
	return KeyPrefix + hex.EncodeToString(sum[:16])
}

// Same reports whether both refer to the same object: one that was deleted and created anew is another, and so is one in a
// cluster that is known to be another. References of other systems, which have no fleet and manager, are compared without
// these.
func (r Reference) Same(other Reference) bool {
	if r.Fleet == "" || other.Fleet == "" {
		r.Fleet, other.Fleet, r.Manager, other.Manager = "", "", "", ""
	}
	return r.UID == other.UID && r.Key() == other.Key() && !Differ(r.ClusterUID, other.ClusterUID)
}

// Succeeds reports whether what belonged to the owner of the reference before belongs to r's: it is the same owner, or it
// was created anew in the place of the one before. That takes the same key and the same cluster. Where before says which
// cluster and r does not, only the same owner is certain; where before does not say it, the name counts.
func (r Reference) Succeeds(before Reference) bool {
	return r.Same(before) || r.Key() == before.Key() && (before.ClusterUID == "" || before.ClusterUID == r.ClusterUID)
}

// longestText bounds what is shown of a reference, in bytes. Whoever may write to a dependent may write any names.
const longestText = 700

// String names the owner, for messages.
func (r Reference) String() string {
	return oneline.Text(fmt.Sprintf("%s %s", r.GroupKind(), r.Request()), longestText)
}
