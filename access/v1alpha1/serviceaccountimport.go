package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccountImport asks for a Secret with a token of an account in another cluster. It is in the hub, and the Secret is
// beside it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sai
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expirationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceAccountImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ServiceAccountImportSpec   `json:"spec"`
	Status ServiceAccountImportStatus `json:"status,omitzero"`
}

// ServiceAccountImportSpec names the account. ClusterName, Namespace and Name never change.
type ServiceAccountImportSpec struct {
	// ClusterName is the name of the member.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName is immutable"
	ClusterName string `json:"clusterName"`
	// Namespace and Name are those of the account in the cluster.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace is immutable"
	Namespace string `json:"namespace"`

	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="name is immutable"
	Name string `json:"name"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 86400 seconds. The cluster may grant less. Default: 3600.
	//
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=3600
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
	// SecretName names the Secret. Default: the name of the import.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	SecretName string `json:"secretName,omitempty"`

	// DecodeError is why not all of the spec that is stored can be decoded, empty if it can.
	DecodeError string `json:"-"`
}

// ServiceAccountImportStatus says where the token is, and for how long.
type ServiceAccountImportStatus struct {
	// Secrets has the Secret with the token, and while another one takes its place that too, behind it. A name is here before there is
	// such a Secret; it has a token once ExpirationTime is set.
	//
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Secrets []corev1.LocalObjectReference `json:"secrets,omitempty"`
	// Conditions has [ConditionReady].
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ExpirationTime is when the token in the Secret expires, and RenewTime when it was made.
	ExpirationTime metav1.Time `json:"expirationTime,omitzero"`
	RenewTime      metav1.Time `json:"renewTime,omitzero"`

	// Undecoded says that the status that is stored cannot be decoded. Nothing of it is known then.
	Undecoded bool `json:"-"`
}

// ServiceAccountImportList is a list of ServiceAccountImports.
//
// +kubebuilder:object:root=true
type ServiceAccountImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ServiceAccountImport `json:"items"`
}
