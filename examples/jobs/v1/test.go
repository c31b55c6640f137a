// Package v1 holds the kind Test. The schema is in crd.yaml beside this folder.
//
// +kubebuilder:object:generate=true
// +groupName=job.lailin.xyz
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

//go:generate go tool -modfile=../../../hack/generate.mod controller-gen object paths=.
//go:generate sh -c "go tool -modfile=../../../hack/generate.mod controller-gen crd:maxDescLen=300 paths=. output:crd:stdout > ../crd.yaml"

// GroupVersion is the API group of Tests, and its version.
var GroupVersion = schema.GroupVersion{Group: "job.lailin.xyz", Version: "v1"}

// AddToScheme adds Tests to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Test{}, &TestList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Test runs an image once in each of several clusters. It is finished as soon as that has worked in one of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Test struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   TestSpec   `json:"spec"`
	Status TestStatus `json:"status,omitzero"`
}

// TestSpec says what is run, and where. It cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it cannot be changed; create another Test"
type TestSpec struct {
	// Image is that of the container.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Command is what it runs. Default: what the image says.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// BackoffLimit is how often a failed pod is replaced, in each cluster. Default: 6.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:default=6
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// ClusterLabels select members by their labels, beside the main cluster. Default: every member.
	//
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].size() <= 63)",message="values of labels have 63 characters at most"
	ClusterLabels map[string]string `json:"clusterLabels,omitempty"`
}

// TestStatus says what has become of it.
type TestStatus struct {
	Phase Phase `json:"phase"`
	// Results are those of the clusters.
	//
	// +listType=map
	// +listMapKey=cluster
	Results []Result `json:"results,omitempty"`
	// Conditions are [ConditionComplete] and [ConditionFailed], one of which is True in the end.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Phase is how far a Test has come.
//
// +kubebuilder:validation:Enum=running;finished;failed
type Phase string

// What a Test can be. Finished and failed last.
const (
	PhaseRunning  Phase = "running"
	PhaseFinished Phase = "finished" // one cluster has completed its Job
	PhaseFailed   Phase = "failed"   // the Jobs of all clusters have failed
)

// IsFinal reports whether nothing is to be run any more.
func (p Phase) IsFinal() bool { return p == PhaseFinished || p == PhaseFailed }

// The conditions of a Test. There are those of Jobs of the same names.
const (
	ConditionComplete = "Complete"
	ConditionFailed   = "Failed"
)

// Result is how far the Job of one cluster has come.
type Result struct {
	// Cluster is its name in the fleet, and empty for the main cluster.
	Cluster mcreconcile.ClusterName `json:"cluster"`
	// State is how far it has come.
	State State `json:"state"`
	// Message says why.
	Message string `json:"message,omitempty"`
}

// State is how far the Job of one cluster has come.
//
// +kubebuilder:validation:Enum=pending;running;complete;failed
type State string

// What a Job can be. Complete and failed last.
const (
	StatePending  State = "pending" // there is no Job yet, or it has no pod
	StateRunning  State = "running"
	StateComplete State = "complete"
	StateFailed   State = "failed"
)

// IsFinal reports whether the Job has ended.
func (s State) IsFinal() bool { return s == StateComplete || s == StateFailed }

// TestList is a list of Tests.
//
// +kubebuilder:object:root=true
type TestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Test `json:"items"`
}
