// Package v1alpha1 holds the kind Replicator, which brings objects to clusters of a fleet, changed for each as it says. Its CRD is
// crd.yaml, see [CRD].
//
// +kubebuilder:object:generate=true
// +groupName=replicator.fleet-runtime.dev
package v1alpha1

import (
	_ "embed" // of the CRD

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > crd.yaml"

//go:embed crd.yaml
var crd string //nolint:gochecknoglobals // embed needs a variable; nobody writes to it

// CRD returns the manifest of the CustomResourceDefinition, for the hub.
func CRD() string { return crd }

const (
	group   = "replicator.fleet-runtime.dev"
	version = "v1alpha1"

	// SourceLabel with the value "true" lets Replicators of its namespace bring an object of the hub to other clusters.
	SourceLabel = group + "/source"

	// ConditionSynced is True if every target has what the Replicator says. Its message names the first target that does not.
	ConditionSynced = "Synced"
	// ConditionProgressing is True while targets are being changed, or what they got is not ready yet. It is False with [ReasonHalted]
	// once too many have failed, and with [ReasonDeadlineExceeded] after the deadline.
	ConditionProgressing = "Progressing"

	// ReasonHalted says that as many targets have failed as the rollout's haltAfter: no further one is changed.
	ReasonHalted = "Halted"
	// ReasonDeadlineExceeded says that a target is stuck, see the rollout's progressDeadlineSeconds.
	ReasonDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonNoTargets says that no cluster is chosen.
	ReasonNoTargets = "NoTargets"
	// ReasonInvalid says that the spec cannot be decoded, or does not say which clusters it chooses. What it has brought to clusters stays there.
	ReasonInvalid = "Invalid"
	// ReasonNotReady says that all is as desired, and something of it is not ready.
	ReasonNotReady = "NotReady"
)

// GroupVersion returns the API group of Replicators, and its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: group, Version: version} }

// AddToScheme adds Replicators to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Replicator{}, &ReplicatorList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
