package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

var groupVersion = schema.GroupVersion{Group: "multicluster.admiralty.io", Version: "v1alpha1"}

// newScheme returns the types of Kubernetes, and PodGhosts.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(groupVersion, &PodGhost{}, &PodGhostList{})
	metav1.AddToGroupVersion(s, groupVersion)
	return s, scheme.AddToScheme(s)
}

// PodGhost says that there is a Pod in some cluster. Its CRD is in crd.yaml.
type PodGhost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodGhostSpec `json:"spec"`
}

// PodGhostSpec names the Pod.
type PodGhostSpec struct {
	Cluster   string    `json:"cluster"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// PodGhostList is a list of them.
type PodGhostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PodGhost `json:"items"`
}

// DeepCopyInto makes out a copy that shares nothing with g.
func (g *PodGhost) DeepCopyInto(out *PodGhost) {
	*out = *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject implements runtime.Object.
func (g *PodGhost) DeepCopyObject() runtime.Object {
	out := &PodGhost{}
	g.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *PodGhostList) DeepCopyObject() runtime.Object {
	out := &PodGhostList{TypeMeta: l.TypeMeta, Items: make([]PodGhost, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
