package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Replicator brings objects to clusters of the fleet, keeps them there as it says, and removes them when they are no longer wanted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=fleet
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.targets`
// +kubebuilder:printcolumn:name="Synced",type=integer,JSONPath=`.status.synced`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Not Synced In",type=string,JSONPath=`.status.notSyncedIn`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].message`
type Replicator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec says what is to be where.
//
// +kubebuilder:validation:XValidation:rule="has(self.manifests) && size(self.manifests) > 0 || has(self.references) && size(self.references) > 0",message="manifests or references must have something",fieldPath=".manifests"
type Spec struct {
	// Manifests are objects as they are written for kubectl apply. One without a namespace gets the field namespace, if its kind has
	// namespaces. Annotations of the library, such as fleet-runtime.dev/wave, hold for single ones.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	Manifests []Manifest `json:"manifests,omitempty"`

	// References are objects in the Replicator's own namespace. They are brought to the targets beside the manifests, and followed as
	// they change, without their finalizers. They need the label replicator.fleet-runtime.dev/source=true.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	References []Reference `json:"references,omitempty"`

	// Namespace is that in the targets, for all objects that name none. Default: the Replicator's own.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// CreateNamespace creates namespaces where they are absent. Such a one is deleted with the last Replicator that uses it, if nothing
	// of others is in it. One that is there already is never deleted.
	CreateNamespace bool `json:"createNamespace,omitempty"`

	// Clusters are the targets.
	// +required
	Clusters Clusters `json:"clusters"`

	// Overrides change objects for some of the targets, in this order.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	Overrides []Override `json:"overrides,omitempty"`

	// Conflicts says what is done where an object is there that is not this Replicator's. Fail leaves it alone and says so. Adopt takes
	// it over if nobody owns it.
	// +kubebuilder:default=Fail
	Conflicts ConflictPolicy `json:"conflicts,omitempty"`

	// DeletionPolicy says what becomes of objects that are no longer wanted, and of all when the Replicator is deleted. Orphan lets them
	// stay as nobody's.
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Change says what is done about an object that is not as it should be. CreateOnly leaves it as it is, once it is there and the Replicator's.
	// +kubebuilder:default=Apply
	Change ChangePolicy `json:"change,omitempty"`

	// Suspend stops changes. What is no longer wanted is removed all the same, but for where something is suspended that is not as it should be.
	Suspend bool `json:"suspend,omitempty"`

	// Rollout says how changes are brought to the targets.
	// +kubebuilder:default={}
	Rollout Rollout `json:"rollout,omitempty"`

	// DecodeError is why the spec that is stored cannot be decoded, empty if it can. Only its DeletionPolicy is known then.
	DecodeError string `json:"-"`
}

// Manifest is an object of any kind that the operator allows.
//
// +kubebuilder:validation:XValidation:rule="has(self.metadata.name) && size(self.metadata.name) > 0 && size(self.metadata.name) <= 253",message="metadata.name is required, with at most 253 characters"
type Manifest struct {
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:pruning:PreserveUnknownFields
	runtime.RawExtension `json:",inline"`
}

// Reference names an object in the hub.
type Reference struct {
	// Group of the kind, empty for Kubernetes' core.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// As is its name in the targets. Default: the same.
	// +kubebuilder:validation:MaxLength=253
	As string `json:"as,omitempty"`
}

// Clusters chooses members of the fleet: those that any of the fields names. A cluster that leaves the fleet keeps what it has.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) && size(self.names) > 0 || has(self.selector) || has(self.decisionKey) && size(self.decisionKey) > 0",message="one of names, selector and decisionKey is required"
type Clusters struct {
	// Names are those of members. One that is not in the fleet shows in the status.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Names []string `json:"names,omitempty"`

	// Selector is one of labels of members. An empty one selects nothing, and is refused. It has at most 250 labels, expressions and
	// values of these together.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) ? size(self.matchLabels) : 0) + (has(self.matchExpressions) ? size(self.matchExpressions) + self.matchExpressions.map(e, has(e.values) ? size(e.values) : 0).sum() : 0) <= 250",message="a selector has at most 250 labels, expressions and values of these together: give the members that are meant a label"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="In and NotIn need values; Exists and DoesNotExist have none; there are no other operators"
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="an empty selector selects nothing: give matchLabels or matchExpressions"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// DecisionKey is the value of the label multicluster.x-k8s.io/decision-key of PlacementDecisions in the Replicator's namespace, in
	// which a scheduler has written the clusters. A ClusterProfile beside the members' kubeconfigs is the member of its name; one in
	// another namespace is the member NAMESPACE/NAME.
	// +kubebuilder:validation:MaxLength=63
	DecisionKey string `json:"decisionKey,omitempty"`
}

// Override changes objects for some of the targets. It has one of mergePatch, jsonPatch and cel.
//
// +kubebuilder:validation:XValidation:rule="[has(self.mergePatch), has(self.jsonPatch), has(self.cel)].filter(x, x).size() == 1",message="exactly one of mergePatch, jsonPatch and cel is required"
type Override struct {
	// Selector is one of labels of members. Without one, the override is for all targets. It has at most 250 labels, expressions and
	// values of these together.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) ? size(self.matchLabels) : 0) + (has(self.matchExpressions) ? size(self.matchExpressions) : 0) <= 250",message="a selector has at most 250 labels, expressions and values of these together: give the members that are meant a label"
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="an empty selector selects nothing: give matchLabels or matchExpressions, or no selector for all"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Target says which objects are changed. Without one, all are.
	Target Target `json:"target,omitempty"`

	// MergePatch is a JSON merge patch (RFC 7386).
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	MergePatch *runtime.RawExtension `json:"mergePatch,omitempty"`

	// JSONPatch is a JSON patch (RFC 6902). Of a Secret, it finds another text in the place of each value of data and stringData.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	JSONPatch []Operation `json:"jsonPatch,omitempty"`

	// CEL sets fields to what expressions say. Of a Secret, they see another text in the place of each value of data and stringData,
	// which they may set.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	CEL []Expression `json:"cel,omitempty"`
}

// Target says which objects an override changes.
type Target struct {
	// Kind of the objects, such as Deployment. Default: all.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Name of the objects in the targets. Default: all.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Operation is one of a JSON patch.
type Operation struct {
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace;move;copy;test
	Op string `json:"op"`
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// Expression is a field and what it is set to.
type Expression struct {
	// Path is a JSON pointer, such as /spec/replicas. Maps on the way are made where they are absent.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
	// Expression is one of CEL, with the variables cluster.name, cluster.labels and object, such as int(cluster.labels["size"]) * 2.
	// What it may take is bounded, see the README.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
}

// ConflictPolicy is Fail or Adopt.
//
// +kubebuilder:validation:Enum=Fail;Adopt
type ConflictPolicy string

// DeletionPolicy is Delete or Orphan.
//
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

// ChangePolicy is Apply or CreateOnly.
//
// +kubebuilder:validation:Enum=Apply;CreateOnly
type ChangePolicy string

// The policies.
const (
	ConflictFail  ConflictPolicy = "Fail"
	ConflictAdopt ConflictPolicy = "Adopt"

	DeletionDelete DeletionPolicy = "Delete"
	DeletionOrphan DeletionPolicy = "Orphan"

	ChangeApply      ChangePolicy = "Apply"
	ChangeCreateOnly ChangePolicy = "CreateOnly"
)

// Rollout says how changes are brought to the targets. Waves within a target are an annotation of the objects, fleet-runtime.dev/wave.
type Rollout struct {
	// MaxParallel is how many targets are changed at once, as a number or a percentage. One that is not ready yet counts.
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 2147483647, or a percentage from 1% to 100%"
	MaxParallel *intstr.IntOrString `json:"maxParallel,omitempty"`

	// HaltAfter is after how many failed targets no further one is changed until the Replicator is. Zero: never.
	// +kubebuilder:validation:Minimum=0
	HaltAfter int `json:"haltAfter,omitempty"`

	// ProgressDeadlineSeconds is after how long a target that waits, or is not ready, is told as stuck, but for one that waits for its turn while
	// another target is not done.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`
}

// Status says what came of it. What came of each object in each target is in DependentSlices beside the Replicator.
type Status struct {
	// ObservedGeneration is that of the spec which the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Targets are how many clusters are chosen. Each of them is synced, pending, failed or unreachable, or suspended, which the condition tells.
	// +kubebuilder:default=0
	// +optional
	Targets int `json:"targets"`
	// +kubebuilder:default=0
	// +optional
	Synced int `json:"synced"`
	// +kubebuilder:default=0
	// +optional
	Pending int `json:"pending"`
	// +kubebuilder:default=0
	// +optional
	Failed int `json:"failed"`
	// +kubebuilder:default=0
	// +optional
	Unreachable int `json:"unreachable"`
	// NotReady are those of the synced and the suspended in which something is not ready yet, such as a Deployment without its replicas.
	// +kubebuilder:default=0
	// +optional
	NotReady int `json:"notReady"`
	// Leaving are clusters that are no targets any more, and still have something.
	// +kubebuilder:default=0
	// +optional
	Leaving int `json:"leaving"`
	// NotSyncedIn names clusters that are not synced, each with a word for why.
	NotSyncedIn string `json:"notSyncedIn,omitempty"`
	// Conditions are Synced and Progressing.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReplicatorList is a list of Replicators.
//
// +kubebuilder:object:root=true
type ReplicatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Replicator `json:"items"`
}
