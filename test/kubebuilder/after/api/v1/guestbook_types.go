package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// GuestbookSpec is what a guestbook should be.
type GuestbookSpec struct {
	// title is what the guestbook shows above its entries.
	// +required
	Title string `json:"title"`

	// replicas is how many pods serve the guestbook.
	// +kubebuilder:default=1
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// secretName names a Secret of the same namespace, with the password of the guestbook's database.
	// +required
	SecretName string `json:"secretName"`
}

// GuestbookStatus is what a guestbook is.
type GuestbookStatus struct {
	// conditions has one of type Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status

// Guestbook is a guestbook that is served in a cluster.
type Guestbook struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is that of every object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the guestbook should be.
	// +required
	Spec GuestbookSpec `json:"spec"`

	// status is what the guestbook is.
	// +optional
	Status GuestbookStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// GuestbookList is a list of guestbooks.
type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Guestbook `json:"items"`
}

func init() {
	SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
		return nil
	})
}
