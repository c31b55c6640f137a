package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

//go:generate go tool -modfile=../../hack/generate.mod controller-gen object paths=.

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
type PodGhost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodGhostSpec `json:"spec"`
}

// PodGhostSpec names the Pod.
//
// +kubebuilder:object:generate=true
type PodGhostSpec struct {
	Cluster   string    `json:"cluster"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
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
