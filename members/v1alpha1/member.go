// Package v1alpha1 holds the kind Member, which shows one member of a fleet and lets people pause and drain it. Its CRD is crd.yaml,
// see [CRD].
//
// +kubebuilder:object:generate=true
// +groupName=fleet.fleet-runtime.dev
package v1alpha1

import (
	_ "embed" // of the CRD

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > crd.yaml"

//go:embed crd.yaml
var crd string //nolint:gochecknoglobals // embed needs a variable; nobody writes to it

// CRD returns the manifest of the CustomResourceDefinition, for the cluster in which the manager runs.
func CRD() string { return crd }

const (
	// Kind is that of members.
	Kind = "Member"
	// Resource is how the API names them.
	Resource = "members"

	group   = "fleet.fleet-runtime.dev"
	version = "v1alpha1"

	// ConditionAccepted is True if the Member is that of a member of the fleet, and its spec is followed.
	ConditionAccepted = "Accepted"
	// ConditionReady is True if the member is reconciled: it is engaged and reachable, and neither paused nor drained.
	ConditionReady = "Ready"

	// StateGone is the State of a Member whose cluster has left the fleet, and that stays since people hold the member back. Beside it
	// and StateUnknown, the states are those of fleet.State.
	StateGone = "Gone"
	// StateUnknown is the State of a Member whose cluster never was in the fleet.
	StateUnknown = "Unknown"

	// ReasonAccepted is the reason of ConditionAccepted where it is True.
	ReasonAccepted = "Accepted"
	// ReasonUnknownCluster says that the fleet has no member of this name.
	ReasonUnknownCluster = "UnknownCluster"
	// ReasonWrongName says that another Member is that of the cluster: see [ObjectName].
	ReasonWrongName = "WrongName"
)

// GroupVersion returns the API group of members, and its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: group, Version: version} }

// AddToScheme adds members to a scheme, for programs that read them.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Member{}, &MemberList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// Member is one member of a fleet. The fleet's managers create it, write its status and give it the member's labels. Its spec is for
// people. Its name is what [ObjectName] makes of the member's.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`,description="When the state began."
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.status.paused`
// +kubebuilder:printcolumn:name="Replica",type=string,JSONPath=`.status.replica`,description="The replica that works on it."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Cluster",type=string,priority=1,JSONPath=`.spec.clusterName`,description="The name in the fleet."
// +kubebuilder:printcolumn:name="Server",type=string,priority=1,JSONPath=`.status.server`
// +kubebuilder:printcolumn:name="Identity",type=string,priority=1,JSONPath=`.status.identity`,description="Which cluster it is."
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expires`,description="When the credentials end."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type Member struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec is what the member is to be.
type Spec struct {
	// ClusterName is the member's name in the fleet. It never changes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it never changes"
	ClusterName string `json:"clusterName"`
	// Paused stops reconciles of the member. It stays connected, its caches go on, and requests wait until it is over.
	Paused bool `json:"paused,omitempty"`
	// Drained disengages the member: what runs for it ends, and its connections are closed, until it is over.
	Drained bool `json:"drained,omitempty"`
	// Leave lets controllers take back what they have put there, which takes fleet.Options.LeaveTimeout at most, and then drains the
	// member, until it is over. Meanwhile it is neither paused nor drained.
	Leave bool `json:"leave,omitempty"`
	// Reason says to people why the member is paused or drained, or leaves.
	//
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// Status is what the fleet knows of the member. It is written when something has changed, so its age says nothing: whether the
// writer lives is what the Lease tells.
type Status struct {
	// ObservedGeneration is that of the spec which the status follows.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is one of fleet.State, such as Ready. Since is when it began.
	//
	// +kubebuilder:validation:MaxLength=64
	State string      `json:"state,omitempty"`
	Since metav1.Time `json:"since,omitzero"`
	// Reason is one word for what keeps the member from being Ready, or what is wrong with it while it is. Message is that in full.
	//
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Identity tells which cluster it is.
	//
	// +kubebuilder:validation:MaxLength=1024
	Identity string `json:"identity,omitempty"`
	// Duplicates are other members that are the same cluster.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=317
	Duplicates []string `json:"duplicates,omitempty"`
	// Server is the address of the member's API server, and Version what that says it is.
	//
	// +kubebuilder:validation:MaxLength=1024
	Server string `json:"server,omitempty"`

	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// Labels are the member's. The Member has those of them that are valid labels of objects.
	//
	// +mapType=atomic
	Labels map[string]string `json:"labels,omitempty"`
	// NotSynced are the kinds that controllers want and cannot have.
	//
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	NotSynced []NotSynced `json:"notSynced,omitempty"`
	// Replica is the replica that works on the member, where several share them. Epoch is the number of its turn.
	//
	// +kubebuilder:validation:MaxLength=253
	Replica string `json:"replica,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`
	// Expires is when the credentials end, if that is known.
	Expires metav1.Time `json:"expires,omitzero"`
	// Paused, Drained and Leaving say that the member is so now. One that people let leave is both in the end.
	Paused  bool `json:"paused,omitempty"`
	Drained bool `json:"drained,omitempty"`
	Leaving bool `json:"leaving,omitempty"`
	// Lease is that of the replica which has written the status. If it lapses, or is gone, nobody keeps the status up to date.
	Lease *Lease `json:"lease,omitempty"`
	// Conditions are Accepted and Ready.
	//
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NotSynced is a kind that controllers want and cannot have.
type NotSynced struct {
	// Kind is written with its group: Deployment.apps.
	//
	// +kubebuilder:validation:MaxLength=384
	Kind string `json:"kind"`
	// Reason is one word for why. Message is that in full, and Since is when it began.
	//
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// +kubebuilder:validation:MaxLength=1024
	Message string      `json:"message,omitempty"`
	Since   metav1.Time `json:"since,omitzero"`
}

// Lease names a Lease.
type Lease struct {
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MemberList is a list of members.
//
// +kubebuilder:object:root=true
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Member `json:"items"`
}
