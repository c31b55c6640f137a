package main

import (
	"fmt"
	"strings"
	"testing"

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

// TestATestHasAJobInEachCluster: Kubernetes' own controllers of Jobs and of garbage run in both clusters; the test plays
// the kubelets.
func TestATestHasAJobInEachCluster(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	for _, cp := range w.clusters() {
		cp.StartControllerManager(t, "job-controller", "garbage-collector-controller")
	}

	t.Run("a Job in each cluster", func(t *testing.T) {
		test := w.create(t, "test-sample")
		for name, cp := range w.clusters() {
			j := hasJob(t, cp, "test-sample")
			owner, _ := mcowner.ControllerOf(j, name)
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
		stage.Eventually(t, "the result of sub is there", func() bool { return stateIn(w.test(t, "t2"), "sub").State == jobv1.StateFailed })
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
		stage.Eventually(t, "there is another Job", func() bool {
			j := job(t, w.sub, "unfinished")
			return j != nil && j.UID != before.UID
		})
	})

	t.Run("Jobs and their pods go with the Test", func(t *testing.T) {
		for _, cp := range w.clusters() {
			stage.Eventually(t, "the Job has a pod", func() bool { return len(pods(t, cp, "unfinished")) > 0 })
		}
		must(t, w.main.Client().Delete(t.Context(), newTest("unfinished")))
		stage.Eventually(t, "the Test is gone", func() bool { return w.test(t, "unfinished") == nil })
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
			stage.Eventually(t, "the Job is gone", func() bool { return job(t, cp, "stripped") == nil })
		}
	})

	t.Run("no right is too much", func(t *testing.T) {
		w.inMain.NeedsAll(t)
		w.inSub.NeedsAll(t)
	})
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
	}, stray, "sub"))
	must(t, w.sub.Client().Create(t.Context(), stray))
	w.program.Writes("msg=Reconciling", "cluster=nowhere", "name=stray") // which waits for that cluster, if it ever comes

	test := w.create(t, "stray")
	owner, _ := mcowner.ControllerOf(hasJob(t, w.main, "stray"), mcreconcile.LocalCluster)
	if owner.UID != test.UID {
		t.Errorf("the Job in the main cluster belongs to %s (%s)", owner, owner.UID)
	}
	w.told(t, "stray", dependents.EventConflict, "nowhere")
	stage.Eventually(t, "the result says whose the Job is", func() bool { return strings.Contains(stateIn(w.test(t, "stray"), "sub").Message, "nowhere") })
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
			owner, ok := mcowner.ControllerOf(hasJob(t, cp, name), cluster)
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
		hasJob(t, w.sub, "early")
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
