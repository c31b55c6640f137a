// Package v1alpha1 holds the kind Foo, which Kubernetes' sample controller has made known
// (https://github.com/kubernetes/sample-controller). The schema is in crd.yaml beside this folder.
package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group of Foos, and its version.
var GroupVersion = schema.GroupVersion{Group: "samplecontroller.k8s.io", Version: "v1alpha1"}

// AddToScheme adds Foos to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Foo{}, &FooList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Foo asks for a Deployment.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   FooSpec   `json:"spec"`
	Status FooStatus `json:"status,omitzero"`
}

// FooSpec says which Deployment.
type FooSpec struct {
	// DeploymentName is its name. If it is changed, the Deployment of the old name is deleted.
	DeploymentName string `json:"deploymentName"`
	// Replicas is how many pods it has. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
}

// FooStatus says what has become of it.
type FooStatus struct {
	// ObservedGeneration is the generation of the Foo that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// AvailableReplicas is how many pods of the Deployment are available.
	AvailableReplicas int32 `json:"availableReplicas"`
	// Conditions has [ConditionSynced].
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionSynced says whether the Deployment is as the Foo asks.
const ConditionSynced = "Synced"

// FooList is a list of Foos.
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Foo `json:"items"`
}

// DeepCopyInto makes out a copy that shares nothing with f.
func (f *Foo) DeepCopyInto(out *Foo) {
	*out = *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if f.Spec.Replicas != nil {
		out.Spec.Replicas = new(*f.Spec.Replicas)
	}
	out.Status.Conditions = slices.Clone(f.Status.Conditions)
}

// DeepCopy returns a copy that shares nothing with f.
func (f *Foo) DeepCopy() *Foo {
	out := &Foo{}
	f.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements [runtime.Object].
func (f *Foo) DeepCopyObject() runtime.Object { return f.DeepCopy() }

// DeepCopyInto makes out a copy that shares nothing with l.
func (l *FooList) DeepCopyInto(out *FooList) {
	*out = *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Foo, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopy returns a copy that shares nothing with l.
func (l *FooList) DeepCopy() *FooList {
	out := &FooList{}
	l.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements [runtime.Object].
func (l *FooList) DeepCopyObject() runtime.Object { return l.DeepCopy() }
