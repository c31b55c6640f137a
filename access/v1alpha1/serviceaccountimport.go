package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceAccountImport asks for a Secret with a token of an account in another cluster. It is in the hub, and the Secret is
// beside it.
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
type ServiceAccountImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ServiceAccountImport `json:"items"`
}

// DeepCopyInto makes out a copy that shares nothing with i.
func (i *ServiceAccountImport) DeepCopyInto(out *ServiceAccountImport) {
	*out = *i
	i.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	i.Status.DeepCopyInto(&out.Status)
}

// DeepCopyInto makes out a copy that shares nothing with s.
func (s *ServiceAccountImportStatus) DeepCopyInto(out *ServiceAccountImportStatus) {
	*out = *s
	out.Secrets, out.Conditions = slices.Clone(s.Secrets), slices.Clone(s.Conditions)
}

// DeepCopy returns a copy that shares nothing with i.
func (i *ServiceAccountImport) DeepCopy() *ServiceAccountImport {
	out := &ServiceAccountImport{}
	i.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements [runtime.Object].
func (i *ServiceAccountImport) DeepCopyObject() runtime.Object { return i.DeepCopy() }

// DeepCopyInto makes out a copy that shares nothing with l.
func (l *ServiceAccountImportList) DeepCopyInto(out *ServiceAccountImportList) {
	*out = *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]ServiceAccountImport, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopy returns a copy that shares nothing with l.
func (l *ServiceAccountImportList) DeepCopy() *ServiceAccountImportList {
	out := &ServiceAccountImportList{}
	l.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements [runtime.Object].
func (l *ServiceAccountImportList) DeepCopyObject() runtime.Object { return l.DeepCopy() }
