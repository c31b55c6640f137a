// Package v1alpha1 holds the kind Foo, which Kubernetes' sample controller has made known
// (https://github.com/kubernetes/sample-controller). The schema is in crd.yaml beside this folder.
//
// +kubebuilder:object:generate=true
// +groupName=samplecontroller.k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > ../crd.yaml"

// GroupVersion is the API group of Foos, and its version.
var GroupVersion = schema.GroupVersion{Group: "samplecontroller.k8s.io", Version: "v1alpha1"}

// AddToScheme adds Foos to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Foo{}, &FooList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Foo asks for a Deployment. Groups that end in k8s.io are Kubernetes' own, hence the annotation of its CRD:
// https://github.com/kubernetes/enhancements/pull/1111
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, experimental-only"
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   FooSpec   `json:"spec"`
	Status FooStatus `json:"status,omitzero"`
}

// FooSpec says which Deployment.
type FooSpec struct {
	// DeploymentName is its name. If it is changed, the Deployment of the old name is deleted.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	DeploymentName string `json:"deploymentName"`
	// Replicas is how many pods it has. Default: 1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:default=1
	Replicas *int32 `json:"replicas,omitempty"`
}

// FooStatus says what has become of it.
type FooStatus struct {
	// ObservedGeneration is the generation of the Foo that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// AvailableReplicas is how many pods of the Deployment are available.
	//
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// Conditions has [ConditionSynced].
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionSynced says whether the Deployment is as the Foo asks.
const ConditionSynced = "Synced"

// FooList is a list of Foos.
//
// +kubebuilder:object:root=true
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Foo `json:"items"`
}
