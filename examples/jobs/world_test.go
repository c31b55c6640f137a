package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.RunInPod(m, &pool, "fleet", main)) }

const inNamespace = "default"

// world is the main cluster and the member "sub", which the program may reach with the rights of its manifests.
type world struct {
	main, sub     *mctest.ControlPlane
	inMain, inSub *stage.Account
	described     *corev1.Secret // describes sub
	program       *stage.Program
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(scheme.AddToScheme(s), jobv1.AddToScheme(s)))
	f := pool.Start(t, mctest.Options{Clusters: 1, CRDPaths: []string{"crd.yaml"}, Scheme: s})
	w := &world{main: f.Local, sub: f.Members[0]}
	w.inMain = stage.NewAccount(t, w.main, mctest.Rights{File: "rbac/main.yaml", Needed: map[string]string{
		"create configmaps in fleet": "no cluster is given up here: package dependents has tests of that",
		"patch configmaps in fleet":  "no cluster is given up here: package dependents has tests of that",
	}})
	w.inSub = stage.NewAccount(t, w.sub, mctest.Rights{File: "rbac/member.yaml"})
	w.described = stage.Join(t, w.main, "sub", w.inSub.Kubeconfig(t), map[string]string{"tier": "sub"}, objects.LeaveFinalizer)
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	w.program = stage.Start(t, "--kubeconfig", w.inMain.File(t), "--metrics", "0", "--verbosity", "5")
}

func (w *world) clusters() map[mcreconcile.ClusterName]*mctest.ControlPlane {
	return map[mcreconcile.ClusterName]*mctest.ControlPlane{mcreconcile.LocalCluster: w.main, "sub": w.sub}
}

func (w *world) accounts() []*stage.Account { return []*stage.Account{w.inMain, w.inSub} }

// create creates a Test in the main cluster.
func (w *world) create(t *testing.T, name string, change ...func(*jobv1.Test)) *jobv1.Test {
	t.Helper()
	test := newTest(name)
	for _, c := range change {
		c(test)
	}
	must(t, w.main.Client().Create(t.Context(), test))
	return test
}

func newTest(name string) *jobv1.Test {
	return &jobv1.Test{
		ObjectMeta: metav1.ObjectMeta{Namespace: inNamespace, Name: name},
		Spec:       jobv1.TestSpec{Image: "busybox"},
	}
}

func withoutRetry(test *jobv1.Test) { test.Spec.BackoffLimit = new(int32) }

func (w *world) test(t *testing.T, name string) *jobv1.Test {
	t.Helper()
	return get(t, w.main, newTest(name))
}

// becomes waits until a Test has come to a phase, and returns it.
func (w *world) becomes(t *testing.T, name string, phase jobv1.Phase) *jobv1.Test {
	t.Helper()
	var test *jobv1.Test
	stage.Soon(t, fmt.Sprintf("Test %s is %s", name, phase), func() bool {
		test = w.test(t, name)
		return test.Status.Phase == phase
	})
	return test
}

// stateIn returns what the status of a Test says about a cluster.
func stateIn(test *jobv1.Test, cluster mcreconcile.ClusterName) jobv1.Result {
	i := slices.IndexFunc(test.Status.Results, func(r jobv1.Result) bool { return r.Cluster == cluster })
	if i < 0 {
		return jobv1.Result{}
	}
	return test.Status.Results[i]
}

// job returns a Job of a cluster, nil if there is none.
func job(t *testing.T, cp *mctest.ControlPlane, name string) *batchv1.Job {
	t.Helper()
	return get(t, cp, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: inNamespace, Name: name}})
}

// hasJob waits until a cluster has a Job, and returns it.
func hasJob(t *testing.T, cp *mctest.ControlPlane, name string) *batchv1.Job {
	t.Helper()
	var j *batchv1.Job
	stage.Soon(t, fmt.Sprintf("%s has the Job %s", cp.Name, name), func() bool {
		j = job(t, cp, name)
		return j != nil
	})
	return j
}

// end plays the kubelet for the pod of a Job: it ends the pod.
func end(t *testing.T, cp *mctest.ControlPlane, job string, phase corev1.PodPhase) {
	t.Helper()
	stage.Eventually(t, fmt.Sprintf("the Job %s of %s has a pod", job, cp.Name), func() bool { return len(pods(t, cp, job)) == 1 })
	pod := &pods(t, cp, job)[0]
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Status.Phase = phase
	must(t, cp.Client().Status().Patch(t.Context(), pod, patch))
}

func pods(t *testing.T, cp *mctest.ControlPlane, job string) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	must(t, cp.Client().List(t.Context(), list, client.InNamespace(inNamespace), client.MatchingLabels{batchv1.JobNameLabel: job}))
	return list.Items
}

// isUntouched reports whether the program has never written to an object.
func isUntouched(obj client.Object) bool {
	return !slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "tests" })
}

// told waits until an event was recorded on a Test.
func (w *world) told(t *testing.T, test, reason, text string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("an event %s about %q on %s", reason, text, test), func() bool {
		list := &eventsv1.EventList{}
		must(t, w.main.Client().List(t.Context(), list, client.InNamespace(inNamespace)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "Test" && e.Regarding.Name == test && e.Reason == reason && strings.Contains(e.Note, text)
		})
	})
}

// get returns an object by its name, nil if there is none.
func get[T client.Object](t *testing.T, cp *mctest.ControlPlane, obj T) T {
	t.Helper()
	var none T
	err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return none
	}
	must(t, err)
	return obj
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
