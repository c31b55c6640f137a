// Package v1alpha1 holds the kinds ClusterAccess and ServiceAccountImport, by which clusters are reached with tokens that do not
// last. Their CRDs are in [CRDs].
//
// +kubebuilder:object:generate=true
// +groupName=access.fleet-runtime.dev
package v1alpha1

import (
	_ "embed" // of the CRDs

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > crds.yaml"

//go:embed crds.yaml
var crds string //nolint:gochecknoglobals // embed needs a variable; nobody writes to it

// CRDs returns the manifests of the CustomResourceDefinitions, for the hub. They are one YAML file.
func CRDs() string { return crds }

const (
	group   = "access.fleet-runtime.dev"
	version = "v1alpha1"

	// KindClusterAccess is the kind of a [ClusterAccess].
	KindClusterAccess = "ClusterAccess"
	// KindServiceAccountImport is the kind of a [ServiceAccountImport].
	KindServiceAccountImport = "ServiceAccountImport"
)

// Types of the conditions in the status of both kinds.
const (
	// ConditionReady says whether tokens can be had, and the server accepts them.
	ConditionReady = "Ready"
	// ConditionAuthorized says whether tokens may be made for the account.
	ConditionAuthorized = "Authorized"
)

// Reasons of the conditions. The reasons of package fleet are used beside them, such as Refused for a server at whose address
// nothing listens.
const (
	// ReasonAsExpected is for conditions that are true, where nothing is to be looked after.
	ReasonAsExpected = "AsExpected"
	// ReasonPaused is for what spec.paused keeps from being used.
	ReasonPaused = "Paused"
	// ReasonServiceAccountNotFound is for an account that does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonNotAllowed is for an import that spec.allowedImports does not have, and for tokens that may not be made.
	ReasonNotAllowed = "NotAllowed"
	// ReasonClusterNotFound is for an import of a cluster that has no ClusterAccess.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonSecretExists is for an import whose Secret would have the name of another one.
	ReasonSecretExists = "SecretExists"
	// ReasonSecretNotFound is for a minter whose Secret does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretInvalid is for a minter's Secret that lacks a key, or has one that cannot be used.
	ReasonSecretInvalid = "SecretInvalid"
	// ReasonMismatch is for a minter's Secret that was made for another server, CA or name of a certificate than those of the ClusterAccess.
	ReasonMismatch = "Mismatch"
	// ReasonMinterExpired is for a minter whose own token has expired, or is not accepted any more.
	ReasonMinterExpired = "MinterExpired"
	// ReasonNotRenewed is for a cluster that can be used until its minter's own token expires, as that cannot be renewed.
	ReasonNotRenewed = "NotRenewed"
	// ReasonHub is for a hub that does not answer, or answers with an error.
	ReasonHub = "HubError"
	// ReasonEqualIssuers is for a cluster that calls itself by the same issuer as the hub does, and so takes the hub's tokens
	// for forged ones of its own.
	ReasonEqualIssuers = "EqualIssuers"
	// ReasonTokenRefused is for a cluster that does not accept the tokens.
	ReasonTokenRefused = "TokenRefused"
	// ReasonAnotherUser is for an import whose tokens the cluster takes for those of somebody else than the account.
	ReasonAnotherUser = "AnotherUser"
	// ReasonLoopback is for a server that does not answer at an address such as 127.0.0.1, which is another machine for
	// everybody.
	ReasonLoopback = "Loopback"
	// ReasonInvalid is for a spec that cannot be used.
	ReasonInvalid = "Invalid"
)

// Keys of a minter's Secret.
const (
	// MinterToken is the key of the minter's own token.
	MinterToken = "token"
	// MinterServer is the key of the server that the token is for. It must be that of the ClusterAccess.
	MinterServer = "server"
	// MinterCA is the key of the certificates that the server is known by. They must be those of the ClusterAccess.
	MinterCA = "ca.crt"
	// MinterTLSServerName is the key of the name that the server's certificate has. It must be that of the ClusterAccess, and may be
	// missing where that has none.
	MinterTLSServerName = "tlsServerName"
	// MinterNamespace is the key of the namespace of the minter's own account in the member.
	MinterNamespace = "namespace"
	// MinterServiceAccount is the key of the name of the minter's own account.
	MinterServiceAccount = "serviceAccount"
)

// Keys of the Secret of an import.
const (
	// ImportToken is the key of the token.
	ImportToken = "token"
	// ImportCA is the key of the certificates that the server is known by.
	ImportCA = "ca.crt"
	// ImportNamespace is the key of the account's namespace.
	ImportNamespace = "namespace"
	// ImportServer is the key of the server's URL.
	ImportServer = "server"
	// ImportConfig is the key of a kubeconfig with all of this.
	ImportConfig = "config"
)

// ImportLabel is the label of the Secret of an import. Its value is the name of the import; a name of more than 63 bytes is cut
// short, and ends with a hash.
const ImportLabel = group + "/service-account-import.name"

// ImportSecondsAnnotation is the annotation of the Secret of an import that says which lifetime its token was asked for, in seconds.
const ImportSecondsAnnotation = group + "/service-account-import.expiration-seconds"

const (
	// MountAnnotation is the annotation of a pod that names the imports to mount, with commas between them.
	MountAnnotation = group + "/service-account-imports"
	// MountLabel is the label of namespaces whose pods are looked at for the annotation. Its value is "enabled".
	MountLabel = group + "/mount-imports"
)

// GroupVersion returns the API group of the kinds, and its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: group, Version: version} }

// AddToScheme adds the kinds to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &ClusterAccess{}, &ClusterAccessList{}, &ServiceAccountImport{}, &ServiceAccountImportList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
