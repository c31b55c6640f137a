package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccountImport asks for a Secret with a token of an account in another cluster. It is in the hub, and the Secret is
// beside it.
//
// +kubebuilder:object:root=true
type ServiceAccountImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ServiceAccountImportSpec   `json:"spec"`
	Status ServiceAccountImportStatus `json:"status,omitzero"`
}

// ServiceAccountImportSpec names the account. ClusterName, Namespace and Name never change.
type ServiceAccountImportSpec struct {
	// ClusterName is the name of the member.
	ClusterName string `json:"clusterName"`
	// Namespace and Name are those of the account in the cluster.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 86400 seconds. The cluster may grant less. Default: 3600.
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
	// SecretName names the Secret. Default: the name of the import.
	SecretName string `json:"secretName,omitempty"`
}

// ServiceAccountImportStatus says where the token is, and for how long.
type ServiceAccountImportStatus struct {
	// Secrets has the Secret with the token, once there is one.
	Secrets []corev1.LocalObjectReference `json:"secrets,omitempty"`
	// Conditions has [ConditionReady].
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ExpirationTime is when the token in the Secret expires, and RenewTime when it was made.
	ExpirationTime metav1.Time `json:"expirationTime,omitzero"`
	RenewTime      metav1.Time `json:"renewTime,omitzero"`
}

// ServiceAccountImportList is a list of ServiceAccountImports.
//
// +kubebuilder:object:root=true
type ServiceAccountImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ServiceAccountImport `json:"items"`
}
