// +groupName=multicluster.admiralty.io
// +versionName=v1alpha1

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

//go:generate go tool -modfile=../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > crd.yaml"

var groupVersion = schema.GroupVersion{Group: "multicluster.admiralty.io", Version: "v1alpha1"}

// newScheme returns the types of Kubernetes, and PodGhosts.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(groupVersion, &PodGhost{}, &PodGhostList{})
	metav1.AddToGroupVersion(s, groupVersion)
	return s, scheme.AddToScheme(s)
}

// PodGhost says that there is a Pod in some cluster. Its CRD is in crd.yaml.
//
// +kubebuilder:object:generate=true
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podghosts
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Pod-Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.cluster`
type PodGhost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodGhostSpec `json:"spec"`
}

// PodGhostSpec names the Pod.
//
// +kubebuilder:object:generate=true
type PodGhostSpec struct {
	// Cluster is the name of the cluster in the fleet.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a PodGhost stays that of a Pod of the same cluster, namespace and name"
	Cluster string `json:"cluster"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a PodGhost stays that of a Pod of the same cluster, namespace and name"
	Namespace string `json:"namespace"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a PodGhost stays that of a Pod of the same cluster, namespace and name"
	Name string `json:"name"`
	// UID changes when the Pod is created anew.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// PodGhostList is a list of them.
//
// +kubebuilder:object:generate=true
// +kubebuilder:object:root=true
type PodGhostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PodGhost `json:"items"`
}
