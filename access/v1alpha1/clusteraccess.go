package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterAccess says how a cluster is reached, and as which account. It is in the hub. Its labels are those of the member.
//
// +kubebuilder:object:root=true
type ClusterAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ClusterAccessSpec   `json:"spec"`
	Status ClusterAccessStatus `json:"status,omitzero"`
}

// ClusterAccessSpec has exactly one of Federated and Minter.
type ClusterAccessSpec struct {
	// Server is the URL of the cluster's API server. It begins with https.
	Server string `json:"server"`
	// CABundle holds the certificates that the server is known by, as PEM. Without any, those of the system are used.
	CABundle []byte `json:"caBundle,omitempty"`
	// TLSServerName is the name that the server's certificate has. Default: the host of Server.
	TLSServerName string `json:"tlsServerName,omitempty"`
	// ProxyURL is the proxy by which the server is reached, without credentials. Default: that of the environment.
	ProxyURL string `json:"proxyURL,omitempty"` //nolint:tagliatelle // as the API conventions of Kubernetes write it
	// Paused says that the cluster is not to be connected.
	Paused bool `json:"paused,omitempty"`

	// Federated is for a cluster that accepts the hub's own tokens.
	Federated *Federated `json:"federated,omitempty"`
	// Minter is for a cluster that makes the tokens itself.
	Minter *Minter `json:"minter,omitempty"`

	// AllowedImports say which accounts of the cluster may be imported, and into which namespaces. Default: none.
	AllowedImports []AllowedImports `json:"allowedImports,omitempty"`
}

// Federated names the account of the hub that the cluster trusts.
type Federated struct {
	// ServiceAccountName names an account in the namespace of the ClusterAccess.
	ServiceAccountName string `json:"serviceAccountName"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 3600 seconds. Default: 3600.
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// Minter names the account of the cluster that is used there, and the Secret with what may make tokens for it.
type Minter struct {
	// SecretName names a Secret in the namespace of the ClusterAccess. Its keys are the constants of this package that begin
	// with Minter.
	SecretName string `json:"secretName"`
	// ServiceAccountNamespace and ServiceAccountName name an account in the cluster.
	ServiceAccountNamespace string `json:"serviceAccountNamespace"`
	ServiceAccountName      string `json:"serviceAccountName"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 86400 seconds. The cluster may grant less. Default: 3600.
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// AllowedImports allows each of the namespaces to import each of the accounts.
type AllowedImports struct {
	// Namespaces are those of imports, in the hub.
	Namespaces []string `json:"namespaces"`
	// ServiceAccounts are accounts of the cluster, written "namespace/name".
	ServiceAccounts []string `json:"serviceAccounts"`
}

// ClusterAccessStatus says whether the cluster can be used. It is written when one of these changes.
type ClusterAccessStatus struct {
	// Conditions are [ConditionReady] and [ConditionAuthorized].
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Subject is the user that the cluster takes the tokens for.
	Subject string `json:"subject,omitempty"`
	// ExpirationTime is when the minter's own token expires, and RenewTime when it was last renewed. Tokens that are used
	// at the cluster live in memory alone, and are not told of here.
	ExpirationTime metav1.Time `json:"expirationTime,omitzero"`
	RenewTime      metav1.Time `json:"renewTime,omitzero"`
}

// ClusterAccessList is a list of ClusterAccesses.
//
// +kubebuilder:object:root=true
type ClusterAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ClusterAccess `json:"items"`
}
