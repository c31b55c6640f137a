package dependents

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// What is ready, waits, or has failed, see TestWhatIsReady.
const (
	isReady  = "is ready"
	mustWait = "waits"
	isFailed = "has failed"
)

// TestWhatIsReady: whether it is read with a type or without. What has failed will not be ready, and all else may be yet.
func TestWhatIsReady(t *testing.T) {
	t.Parallel()
	const (
		two         = `spec: {replicas: 2, progressDeadlineSeconds: 600}`
		rolledOut   = `replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2`
		isAvailable = `conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]`
		sameInSet   = `replicas: 2, readyReplicas: 2, currentReplicas: 2, updatedReplicas: 2, currentRevision: b, updateRevision: b`
		onTwoNodes  = `desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2`
		started     = `startTime: "2026-01-01T00:00:00Z"`
	)
	for kind, cases := range map[string][]struct{ name, content, want, says string }{
		"apps/v1 Deployment": {
			{"nobody has seen", `{}`, mustWait, "Replicas: 0/1"},
			{"rolling out", `{` + two + `, status: {replicas: 2, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2, ` + isAvailable + `}}`, mustWait, "Updated: 1/2"},
			{"with a Pod of before", `{` + two + `, status: {replicas: 3, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 3, ` + isAvailable + `}}`, mustWait, "termination"},
			{"with one available", `{` + two + `, status: {replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 1, ` + isAvailable + `}}`, mustWait, "Available: 1/2"},
			{"rolled out", `{` + two + `, status: {` + rolledOut + `, ` + isAvailable + `}}`, isReady, ""},
			{"observed", `{metadata: {generation: 2}, ` + two + `, status: {observedGeneration: 2, ` + rolledOut + `, ` + isAvailable + `}}`, isReady, ""},
			{"not observed", `{metadata: {generation: 2}, ` + two + `, status: {observedGeneration: 1, ` + rolledOut + `, ` + isAvailable + `}}`, mustWait, "generation is 2"},
			{"not available", `{` + two + `, status: {` + rolledOut + `, conditions: [{type: Available, status: "False"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`, mustWait, "not Available"},
			{"past its deadline", `{` + two + `, status: {replicas: 2, updatedReplicas: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`, isFailed, "deadline exceeded"},
			{"being deleted", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, ` + two + `, status: {` + rolledOut + `, ` + isAvailable + `}}`, mustWait, "deletion"},
		},
		"apps/v1 StatefulSet": {
			{"nobody has seen", `{}`, mustWait, "Replicas: 0/1"},
			{"with one ready", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 1, currentReplicas: 2, updatedReplicas: 2}}`, mustWait, "Ready: 1/2"},
			{"rolling out", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: b}}`, mustWait, "revision"},
			{"rolled out", `{spec: {replicas: 2}, status: {` + sameInSet + `}}`, isReady, ""},
			{"not observed", `{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 1, ` + sameInSet + `}}`, mustWait, "generation is 2"},
		},
		"apps/v1 DaemonSet": {
			{"nobody has seen", `{metadata: {generation: 1}}`, mustWait, "Generation"},
			{"rolling out", `{metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 1}}`, mustWait, "Updated: 1/2"},
			{"rolled out", `{metadata: {generation: 1}, status: {observedGeneration: 1, ` + onTwoNodes + `}}`, isReady, ""},
			{"not observed", `{metadata: {generation: 2}, status: {observedGeneration: 1, ` + onTwoNodes + `}}`, mustWait, "generation is 2"},
		},
		"batch/v1 Job": {
			{"nobody has seen", `{}`, mustWait, "not started"},
			{"running", `{status: {` + started + `, active: 1}}`, mustWait, "in progress"},
			{"about to fail", `{status: {` + started + `, conditions: [{type: FailureTarget, status: "True"}]}}`, mustWait, "in progress"},
			{"complete", `{status: {` + started + `, succeeded: 1, conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]}}`, isReady, ""},
			{"failed", `{status: {` + started + `, failed: 1, conditions: [{type: FailureTarget, status: "True"}, {type: Failed, status: "True"}]}}`, isFailed, "Job Failed"},
		},
		"apiextensions.k8s.io/v1 CustomResourceDefinition": {
			{"nobody has seen", `{}`, mustWait, "in progress"},
			{"being installed", `{status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "False", reason: Installing}]}}`, mustWait, "in progress"},
			{"established", `{status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "True"}]}}`, isReady, ""},
			{"with the names of another", `{status: {conditions: [{type: NamesAccepted, status: "False", reason: ListKindConflict, message: it is in use}]}}`, isFailed, "it is in use"},
			{"not accepted", `{status: {conditions: [{type: Established, status: "False", reason: NotAccepted, message: not all names are accepted}]}}`, isFailed, "not all names"},
		},
		"apiregistration.k8s.io/v1 APIService": {
			{"available", `{status: {conditions: [{type: Available, status: "True"}]}}`, isReady, ""},
			{"not available", `{status: {conditions: [{type: Available, status: "False", reason: MissingEndpoints}]}}`, mustWait, "not available"},
		},
		"v1 ConfigMap":                      {{"without a status", `{data: {a: b}}`, isReady, ""}},
		"v1 Namespace":                      {{"active", `{status: {phase: Active}}`, isReady, ""}},
		"v1 PersistentVolumeClaim":          {{"pending", `{status: {phase: Pending}}`, mustWait, "not Bound"}},
		"rbac.authorization.k8s.io/v1 Role": {{"without a status", `{}`, isReady, ""}},
		"example.com/v1 Widget": {
			{"without a status", `{}`, isReady, ""},
			{"with another condition", `{status: {conditions: [{type: Polished, status: "False"}]}}`, isReady, ""},
			{"ready", `{status: {conditions: [{type: Ready, status: "True"}]}}`, isReady, ""},
			{"not ready", `{status: {conditions: [{type: Ready, status: "False", message: it is cold}]}}`, mustWait, "it is cold"},
			{"not known to be ready", `{status: {conditions: [{type: Ready, status: Unknown, message: it is dark}]}}`, mustWait, "it is dark"},
			{"reconciling", `{status: {conditions: [{type: Reconciling, status: "True", message: it is heated}]}}`, mustWait, "it is heated"},
			{"stalled", `{status: {conditions: [{type: Stalled, status: "True", message: it is broken}]}}`, isFailed, "it is broken"},
			{"with a status that makes no sense", `{status: {conditions: [{type: [Ready], status: "True"}]}}`, mustWait, "unrecognized type"},
		},
	} {
		for _, tc := range cases {
			t.Run(kind+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				gvk, forms := formsOf(t, kind, tc.content)
				for form, obj := range forms {
					err := unready(remote.Kind{GroupVersionKind: gvk}, obj)
					if got := readinessOf(err); got != tc.want || err != nil && (!errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), tc.says)) {
						t.Errorf("%s: it %s: %v, want that it %s: %s", form, got, err, tc.want, tc.says)
					}
				}
			})
		}
	}
}

func readinessOf(err error) string {
	switch {
	case err == nil:
		return isReady
	case errors.Is(err, errStalled):
		return isFailed
	default:
		return mustWait
	}
}

// formsOf returns an object without a type, and with that of its kind if there is one. As from a cache, that lacks its kind.
func formsOf(t *testing.T, kind, content string) (schema.GroupVersionKind, map[string]client.Object) {
	t.Helper()
	version, name, _ := strings.Cut(kind, " ")
	gvk := schema.FromAPIVersionAndKind(version, name)
	var all map[string]any
	if err := yaml.Unmarshal([]byte(content), &all); err != nil {
		t.Fatal(err)
	}
	forms := map[string]client.Object{"unstructured": &unstructured.Unstructured{Object: all}}
	if typed, err := scheme.Scheme.New(gvk); err == nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all, typed); err != nil {
			t.Fatal(err)
		}
		forms["typed"] = typed.(client.Object) //nolint:forcetypeassert // so are all with their own API
	}
	return gvk, forms
}
