package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterAccess says how a cluster is reached, and as which account. It is in the hub. Its labels are those of the member.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cla
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Subject",type=string,priority=1,JSONPath=`.status.subject`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expirationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ClusterAccessSpec   `json:"spec"`
	Status ClusterAccessStatus `json:"status,omitzero"`
}

// ClusterAccessSpec has exactly one of Federated and Minter.
//
// +kubebuilder:validation:XValidation:rule="has(self.federated) != has(self.minter)",message="exactly one of federated and minter is required",reason=FieldValueInvalid
type ClusterAccessSpec struct {
	// Server is the URL of the cluster's API server. It begins with https.
	//
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="server must be a URL that begins with https:// and a host"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.contains('?') && !self.contains('#') && !self.contains(' ')",message="server must have no user, query or fragment"
	Server string `json:"server"`
	// CABundle holds the certificates that the server is known by, as PEM. Without any, those of the system are used.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:rule="string(self).contains('-----BEGIN CERTIFICATE-----')",message="caBundle must hold certificates as PEM"
	// +kubebuilder:validation:XValidation:rule="!string(self).contains('PRIVATE KEY')",message="caBundle must hold certificates alone, and no key"
	CABundle []byte `json:"caBundle,omitempty"`
	// TLSServerName is the name that the server's certificate has. Default: the host of Server.
	//
	// +kubebuilder:validation:MaxLength=253
	TLSServerName string `json:"tlsServerName,omitempty"`
	// ProxyURL is the proxy by which the server is reached, without credentials. Default: that of the environment.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] && url(self).getHostname() != ''",message="proxyURL must be a URL that begins with http://, https:// or socks5:// and a host"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="proxyURL must have no user, since this object is no place for credentials"
	ProxyURL string `json:"proxyURL,omitempty"` //nolint:tagliatelle // as the API conventions of Kubernetes write it
	// Paused says that the cluster is not to be connected.
	Paused bool `json:"paused,omitempty"`

	// Federated is for a cluster that accepts the hub's own tokens.
	Federated *Federated `json:"federated,omitempty"`
	// Minter is for a cluster that makes the tokens itself.
	Minter *Minter `json:"minter,omitempty"`

	// AllowedImports say which accounts of the cluster may be imported, and into which namespaces. Default: none.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	AllowedImports []AllowedImports `json:"allowedImports,omitempty"`
}

// Federated names the account of the hub that the cluster trusts.
type Federated struct {
	// ServiceAccountName names an account in the namespace of the ClusterAccess.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccountName string `json:"serviceAccountName"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 3600 seconds. Default: 3600.
	//
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=3600
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// Minter names the account of the cluster that is used there, and the Secret with what may make tokens for it.
type Minter struct {
	// SecretName names a Secret in the namespace of the ClusterAccess. Its keys are the constants of this package that begin
	// with Minter.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	SecretName string `json:"secretName"`
	// ServiceAccountNamespace and ServiceAccountName name an account in the cluster.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ServiceAccountNamespace string `json:"serviceAccountNamespace"`

	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccountName string `json:"serviceAccountName"`
	// ExpirationSeconds is the lifetime of tokens, 600 to 86400 seconds. The cluster may grant less. Default: 3600.
	//
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=3600
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// AllowedImports allows each of the namespaces to import each of the accounts.
type AllowedImports struct {
	// Namespaces are those of imports, in the hub.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces"`
	// ServiceAccounts are accounts of the cluster, written "namespace/name".
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccounts []string `json:"serviceAccounts"`
}

// ClusterAccessStatus says whether the cluster can be used. It is written when one of these changes.
type ClusterAccessStatus struct {
	// Conditions are [ConditionReady] and [ConditionAuthorized].
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Subject is the user that the cluster takes the tokens for.
	//
	// +kubebuilder:validation:MaxLength=1024
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
