// Package v1alpha1 holds the kind DependentSlice, in which a dependents.Reconciler with Slices keeps where an owner has
// dependents, and how they are. Its CRD is crd.yaml, see [CRD].
//
// +kubebuilder:object:generate=true
// +groupName=dependents.fleet-runtime.dev
package v1alpha1

import (
	_ "embed" // of the CRD

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

//go:generate go tool -modfile=../../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > crd.yaml"

//go:embed crd.yaml
var crd string //nolint:gochecknoglobals // embed needs a variable; nobody writes to it

// CRD returns the manifest of the CustomResourceDefinition, for every cluster with owners.
func CRD() string { return crd }

const (
	// Kind is that of slices.
	Kind = "DependentSlice"

	group   = "dependents.fleet-runtime.dev"
	version = "v1alpha1"

	// OwnerLabel is on every slice, with a hash of the owner's kind, namespace and name, and of the controller.
	OwnerLabel = group + "/owner"
	// FleetLabel is on every slice, with the name of the installation.
	FleetLabel = group + "/fleet"
	// ControllerLabel is on every slice, with the name of the controller.
	ControllerLabel = group + "/controller"
	// OwnerNamespaceAnnotation is on every slice, for those that read the metadata alone.
	OwnerNamespaceAnnotation = group + "/owner-namespace"
	// OwnerNameAnnotation is on every slice, for those that read the metadata alone.
	OwnerNameAnnotation = group + "/owner-name"
	// Finalizer keeps a slice for as long as the controller needs it.
	Finalizer = group + "/record"
)

// GroupVersion returns the API group of slices, and its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: group, Version: version} }

// AddToScheme adds slices to a scheme, for programs that read them. The Reconciler does not need it.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &DependentSlice{}, &DependentSliceList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// DependentSlice says of some clusters whether an owner may have dependents there, and how they are. An owner has as many
// slices as its clusters need, in its namespace. The controller writes them, and they are for others to read.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.owner.kind`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.owner.name`
// +kubebuilder:printcolumn:name="Controller",type=string,JSONPath=`.metadata.labels.dependents\.fleet-runtime\.dev/controller`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DependentSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Owner Owner `json:"owner"`
	// Clusters are ordered by name. They are one to those that manage fields, which would else have each name once more.
	//
	// +kubebuilder:validation:MaxItems=4096
	// +listType=atomic
	Clusters []Cluster `json:"clusters,omitempty"`
}

// Owner names the object that the dependents belong to. It is in the slice's cluster.
type Owner struct {
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// Cluster is what is known of one cluster.
type Cluster struct {
	// Name is empty for the controller's own cluster.
	//
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// MayHaveDependents is true from before the first dependent is created there until the last one is known to be gone.
	MayHaveDependents bool `json:"mayHaveDependents,omitempty"`
	// Identities tell the clusters in which there may be dependents from others of the same name.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Type=string
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	Identities []types.UID `json:"identities,omitempty"`
	// Targeted says whether there are to be dependents.
	Targeted bool `json:"targeted,omitempty"`
	// Error says what keeps the cluster from being as desired, and Since is when that began.
	//
	// +kubebuilder:validation:MaxLength=1024
	Error string      `json:"error,omitempty"`
	Since metav1.Time `json:"since,omitzero"`
	// Objects are the dependents. Omitted is how many are left out, since there is no room: those that are as desired first.
	//
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Objects []Object `json:"objects,omitempty"`
	Omitted int32    `json:"omitted,omitempty"`
}

// Object is one dependent.
type Object struct {
	// Kind is written as kubectl's arguments are: Deployment.v1.apps.
	//
	// +kubebuilder:validation:MaxLength=384
	Kind string `json:"kind"`

	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
	// State is one of dependents.State, and Applied for all that is as desired. Since is when it began, if the object is not.
	//
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state"`

	// +kubebuilder:validation:MaxLength=1024
	Error string      `json:"error,omitempty"`
	Since metav1.Time `json:"since,omitzero"`
}

// DependentSliceList is a list of slices.
//
// +kubebuilder:object:root=true
type DependentSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []DependentSlice `json:"items"`
}
