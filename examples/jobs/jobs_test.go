package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestATestHasAJobInEachCluster (AS-8), with the rights of the manifests and no others. Kubernetes' own controllers of Jobs and of garbage run in both clusters; the test plays
// the kubelets.
func TestATestHasAJobInEachCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	for _, cp := range w.clusters() {
		cp.StartControllerManager(t, "job-controller", "garbage-collector-controller")
	}

	t.Run("a Job in each cluster", func(t *testing.T) {
		test := w.create(t, "test-sample")
		for name, cp := range w.clusters() {
			j := hasJob(t, cp, "test-sample")
			owner, _ := mcowner.ControllerOf(j, mcowner.ByName(name))
			if owner.Cluster != mcreconcile.LocalCluster || owner.NamespacedName() != client.ObjectKeyFromObject(test) || owner.UID != test.UID {
				t.Errorf("the Job in %s belongs to %s (%s)", cp.Name, owner, owner.UID)
			}
			if image := j.Spec.Template.Spec.Containers[0].Image; image != "busybox" {
				t.Errorf("the Job in %s runs %s", cp.Name, image)
			}
			if isUntouched(j) {
				t.Errorf("the Job in %s does not show who has written it", cp.Name)
			}
		}
	})

	t.Run("one cluster finishes the Test", func(t *testing.T) {
		end(t, w.sub, "test-sample", corev1.PodSucceeded)
		test := w.becomes(t, "test-sample", jobv1.PhaseFinished)
		if inMain, inSub := stateIn(test, mcreconcile.LocalCluster), stateIn(test, "sub"); inSub.State != jobv1.StateComplete || inMain.State.IsFinal() {
			t.Errorf("the results are %v", test.Status.Results)
		}
		if !meta.IsStatusConditionTrue(test.Status.Conditions, jobv1.ConditionComplete) {
			t.Errorf("the conditions are %v", test.Status.Conditions)
		}
	})

	t.Run("a Test that fails everywhere has failed", func(t *testing.T) {
		w.create(t, "t2", withoutRetry)
		end(t, w.sub, "t2", corev1.PodFailed)
		stage.Soon(t, "the result of sub is there", func() bool { return stateIn(w.test(t, "t2"), "sub").State == jobv1.StateFailed })
		if phase := w.test(t, "t2").Status.Phase; phase != jobv1.PhaseRunning {
			t.Errorf("the phase is %q, and the main cluster still runs", phase)
		}
		end(t, w.main, "t2", corev1.PodFailed)
		test := w.becomes(t, "t2", jobv1.PhaseFailed)
		if !meta.IsStatusConditionTrue(test.Status.Conditions, jobv1.ConditionFailed) {
			t.Errorf("the conditions are %v", test.Status.Conditions)
		}
	})

	t.Run("nobody looks at other Jobs", func(t *testing.T) { testOtherJobs(t, w) })

	t.Run("a deleted Job of an unfinished Test is created anew", func(t *testing.T) {
		w.create(t, "unfinished")
		before := hasJob(t, w.sub, "unfinished")
		must(t, w.sub.Client().Delete(t.Context(), before, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		stage.Soon(t, "there is another Job", func() bool {
			j := job(t, w.sub, "unfinished")
			return j != nil && j.UID != before.UID
		})
	})

	t.Run("Jobs and their pods go with the Test", func(t *testing.T) {
		for _, cp := range w.clusters() {
			stage.Eventually(t, "the Job has a pod", func() bool { return len(pods(t, cp, "unfinished")) > 0 })
		}
		must(t, w.main.Client().Delete(t.Context(), newTest("unfinished")))
		stage.Soon(t, "the Test is gone", func() bool { return w.test(t, "unfinished") == nil })
		for _, cp := range w.clusters() {
			if job(t, cp, "unfinished") != nil {
				t.Errorf("the Test is gone before the Job in %s", cp.Name)
			}
			stage.Eventually(t, "the pods are gone", func() bool { return len(pods(t, cp, "unfinished")) == 0 })
		}
	})

	t.Run("an unknown cluster is not the main one", func(t *testing.T) { testUnknownCluster(t, w) })

	t.Run("long names", func(t *testing.T) { testLongNames(t, w) })

	t.Run("labels select members", func(t *testing.T) {
		w.create(t, "selects", func(test *jobv1.Test) { test.Spec.ClusterLabels = map[string]string{"tier": "sub"} })
		w.create(t, "selects-none", func(test *jobv1.Test) { test.Spec.ClusterLabels = map[string]string{"tier": "other"} })
		hasJob(t, w.sub, "selects")
		hasJob(t, w.main, "selects-none")
		test := w.becomes(t, "selects-none", jobv1.PhaseRunning)
		if len(test.Status.Results) != 1 || job(t, w.sub, "selects-none") != nil {
			t.Errorf("the results are %v, want one of the main cluster", test.Status.Results)
		}
	})

	t.Run("the schema refuses changes", func(t *testing.T) {
		test := w.create(t, "fixed")
		patch := client.MergeFrom(test.DeepCopy())
		test.Spec.Image = "another"
		if err := w.main.Client().Patch(t.Context(), test, patch); !apierrors.IsInvalid(err) {
			t.Errorf("changing the image returned %v, want that it is invalid", err)
		}
	})

	t.Run("a Test that lost its finalizer", func(t *testing.T) {
		test := w.create(t, "stripped")
		hasJob(t, w.main, "stripped")
		hasJob(t, w.sub, "stripped")
		w.program.Freeze()
		must(t, w.main.Client().Patch(t.Context(), test, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		must(t, w.main.Client().Delete(t.Context(), test))
		w.program.Thaw()
		for _, cp := range w.clusters() {
			stage.Soon(t, "the Job is gone", func() bool { return job(t, cp, "stripped") == nil })
		}
	})

	t.Run("a Job whose owner somebody has taken from a label", func(t *testing.T) {
		w.create(t, "unlabelled")
		for _, cp := range w.clusters() {
			j := hasJob(t, cp, "unlabelled")
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, mcowner.OwnerClusterLabel)
			must(t, cp.Client().Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", patch)))
			stage.Soon(t, "the Job has the label again", func() bool {
				_, has := hasJob(t, cp, "unlabelled").Labels[mcowner.OwnerClusterLabel]
				return has
			})
		}
	})

	t.Run("Jobs that the cache does not know yet", func(t *testing.T) { testUnseenJobs(t, w) })

	t.Run("Tests of other namespaces are left alone", func(t *testing.T) { testOtherNamespaces(t, w) })

	t.Run("a cluster leaves, and keeps its Job", func(t *testing.T) {
		w.create(t, "left")
		before := hasJob(t, w.sub, "left")
		stage.Leave(t, w.main, w.described)
		must(t, w.main.Client().Delete(t.Context(), newTest("left")))
		stage.Soon(t, "the Test is gone", func() bool { return w.test(t, "left") == nil })
		if job(t, w.main, "left") != nil || hasJob(t, w.sub, "left").UID != before.UID {
			t.Error("the Job of the main cluster is there, or that of the cluster that has left is another one")
		}
	})

	t.Run("no right is missing, and none is too much", func(t *testing.T) {
		broken := stage.Join(t, w.main, "broken", []byte("this is no kubeconfig"), nil) // the program says so in an event
		w.program.Writes("broken")
		must(t, w.main.Client().Delete(t.Context(), broken))
		for _, account := range w.accounts() {
			account.NeedsAll(t)
		}
	})
}

// testUnseenJobs has a Job of somebody else in the place of a Test's, in each cluster, of which no watch has told.
func testUnseenJobs(t *testing.T, w *world) {
	t.Helper()
	for _, account := range w.accounts() {
		defer account.HoldEvents("jobs")()
	}
	for _, cp := range w.clusters() {
		must(t, cp.Client().Create(t.Context(), newJob("unseen")))
	}
	w.create(t, "unseen")
	for name, cp := range w.clusters() {
		stage.Soon(t, "the result says that there is a Job", func() bool { return strings.Contains(stateIn(w.test(t, "unseen"), name).Message, "exists already") })
		if !isUntouched(job(t, cp, "unseen")) {
			t.Errorf("the Job in %s was changed", cp.Name)
		}
	}
}

// testOtherNamespaces creates a Test in another namespace, and after that one that is run: what is reconciled for the first
// is reconciled then.
func testOtherNamespaces(t *testing.T, w *world) {
	t.Helper()
	for _, cp := range w.clusters() {
		must(t, cp.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}))
	}
	test := newTest("elsewhere")
	test.Namespace = "elsewhere"
	must(t, w.main.Client().Create(t.Context(), test))
	w.create(t, "after-elsewhere")
	hasJob(t, w.sub, "after-elsewhere")
	for _, cp := range w.clusters() {
		jobs := &batchv1.JobList{}
		must(t, cp.Client().List(t.Context(), jobs, client.InNamespace("elsewhere")))
		if len(jobs.Items) > 0 {
			t.Errorf("a Test of another namespace has a Job in %s", cp.Name)
		}
	}
	for _, account := range w.accounts() {
		for _, asked := range account.Asked(t) {
			if strings.Contains(asked, "jobs") && !strings.HasSuffix(asked, " in "+inNamespace) {
				t.Errorf("the program has asked for %s", asked)
			}
		}
	}
}

// testOtherJobs completes a Job of somebody else, and after that one of a Test: what is reconciled for the first is
// reconciled then.
func testOtherJobs(t *testing.T, w *world) {
	t.Helper()
	must(t, w.sub.Client().Create(t.Context(), newJob("other")))
	end(t, w.sub, "other", corev1.PodSucceeded)
	stage.Eventually(t, "the other Job is complete", func() bool { return job(t, w.sub, "other").Status.CompletionTime != nil })

	w.create(t, "after-other")
	end(t, w.sub, "after-other", corev1.PodSucceeded)
	w.becomes(t, "after-other", jobv1.PhaseFinished)
	if len(w.program.Lines("msg=Reconciling", "name=after-other")) == 0 {
		t.Error("the log does not tell what is reconciled")
	}
	if lines := w.program.Lines("msg=Reconciling", "name=other"); len(lines) > 0 {
		t.Errorf("the other Job has led to reconciles: %q", lines)
	}
	if !isUntouched(job(t, w.sub, "other")) {
		t.Error("the other Job was changed")
	}
}

// testUnknownCluster makes a Job in sub say that it belongs to a Test of a cluster that nobody knows. The Test of that name in
// the main cluster is another one.
func testUnknownCluster(t *testing.T, w *world) {
	t.Helper()
	stray := newJob("stray")
	must(t, mcowner.SetControllerReference(mcowner.Reference{
		Fleet: "jobs", Manager: "tests", Cluster: "nowhere",
		APIVersion: jobv1.GroupVersion.String(), Kind: "Test", Namespace: inNamespace, Name: "stray", UID: "1",
	}, stray, mcowner.ByName("sub")))
	must(t, w.sub.Client().Create(t.Context(), stray))
	test := w.create(t, "stray")
	owner, _ := mcowner.ControllerOf(hasJob(t, w.main, "stray"), mcowner.ByName(mcreconcile.LocalCluster))
	if owner.UID != test.UID {
		t.Errorf("the Job in the main cluster belongs to %s (%s)", owner, owner.UID)
	}
	w.told(t, "stray", dependents.EventConflict, "nowhere")
	stage.Soon(t, "the result says whose the Job is", func() bool { return strings.Contains(stateIn(w.test(t, "stray"), "sub").Message, "nowhere") })
	if !isUntouched(job(t, w.sub, "stray")) {
		t.Error("the Job was changed")
	}
}

// testLongNames has Tests whose names are too long for a Job. There are also Tests that have the names of these Jobs: each
// Job has one owner, and the other is told.
func testLongNames(t *testing.T, w *world) {
	t.Helper()
	w.program.Freeze()
	long := map[string]string{} // names of Jobs, and of the Tests
	for i := range 5 {
		test := newTest(fmt.Sprintf("%s-%d", strings.Repeat("long", 50)[:198], i))
		name := jobName(test)
		if len(test.Name) != 200 || len(name) > validation.DNS1123LabelMaxLength || long[name] != "" {
			t.Fatalf("the Job of %s is called %s", test.Name, name)
		}
		long[name] = test.Name
		w.create(t, test.Name)
		w.create(t, name)
	}
	w.program.Thaw()
	for name, test := range long {
		for cluster, cp := range w.clusters() {
			owner, ok := mcowner.ControllerOf(hasJob(t, cp, name), mcowner.ByName(cluster))
			if !ok || owner.Name != name && owner.Name != test {
				t.Errorf("the Job %s in %s belongs to %s", name, cp.Name, owner)
			}
			loser := name
			if owner.Name == name {
				loser = test
			}
			w.told(t, loser, dependents.EventConflict, name)
			if cp == w.sub {
				end(t, w.sub, name, corev1.PodSucceeded)
				w.becomes(t, owner.Name, jobv1.PhaseFinished)
			}
		}
	}
}

// TestTheMainClusterWorksWhileSubIsDown from the start. No other controllers run.
func TestTheMainClusterWorksWhileSubIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sub.Stop(t)
	w.start(t)
	t.Run("the main cluster works, and sub follows", func(t *testing.T) {
		w.create(t, "early")
		hasJob(t, w.main, "early")
		stage.Eventually(t, "the result of sub says why", func() bool {
			r := stateIn(w.test(t, "early"), "sub")
			return r.State == jobv1.StatePending && strings.Contains(r.Message, "not ready")
		})
		w.told(t, "early", dependents.EventClusterNotReady, "sub")
		w.sub.Restart(t)
		stage.Within(t, 15*time.Second, "sub has its Job", func() bool { return job(t, w.sub, "early") != nil })
	})
}

// newJob returns a Job that is no Test's.
func newJob(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: inNamespace, Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "own", Image: "own"}},
		}}},
	}
}
