package main

import (
	"context"
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// newController returns the controller for the Tests of a namespace. What is not here is the library's: Jobs are created anew if somebody deletes them,
// are deleted with their Test, and wait for clusters that are not ready.
func newController(members *fleet.Fleet, namespace string) *dependents.Reconciler[*jobv1.Test] {
	return &dependents.Reconciler[*jobv1.Test]{
		Fleet: "jobs", Name: "tests",
		OwnersIn:     mcowner.Clusters{Local: true},
		DependentsIn: mcowner.Clusters{Local: true, Members: labels.Everything()},
		Kinds:        []client.Object{&batchv1.Job{}},
		Namespaces:   []string{namespace},
		Targets: func(_ context.Context, test *jobv1.Test) ([]mcreconcile.ClusterName, error) {
			return clustersOf(test, members), nil
		},
		Desired: jobOf,
		Status:  isUnknown(members).status,
	}
}

// isUnknown tells by what a fleet knows of its members.
func isUnknown(members *fleet.Fleet) mayCome {
	return func(name mcreconcile.ClusterName) bool {
		_, err := members.Engagement(name)
		return errors.Is(err, fleet.ErrUnknown)
	}
}

// clustersOf returns where a Test runs: in the main cluster, and in the members that have its labels.
func clustersOf(test *jobv1.Test, members *fleet.Fleet) []mcreconcile.ClusterName {
	selected := members.List(labels.SelectorFromSet(test.Spec.ClusterLabels))
	clusters := make([]mcreconcile.ClusterName, 1, 1+len(selected))
	clusters[0] = mcreconcile.LocalCluster
	for _, member := range selected {
		clusters = append(clusters, member.Name)
	}
	return clusters
}

// jobOf returns the Job of a Test in one cluster. Once that has ended there, or the Test has, a Job that somebody deletes
// is not missed.
func jobOf(_ context.Context, test *jobv1.Test, target dependents.Target) ([]client.Object, error) {
	if len(target.Dependents) == 0 && hasEnded(test, target.Cluster) {
		return nil, nil
	}
	name := jobName(test)
	return []client.Object{&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: test.Spec.BackoffLimit,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: name, Image: test.Spec.Image, Command: test.Spec.Command}},
			}},
		},
	}}, nil
}

func hasEnded(test *jobv1.Test, cluster mcreconcile.ClusterName) bool {
	return test.Status.Phase.IsFinal() || slices.ContainsFunc(test.Status.Results, func(r jobv1.Result) bool {
		return r.Cluster == cluster && r.State.IsFinal()
	})
}

// jobName returns the name of a Test's Jobs and of their containers. That of a container is a DNS label, and so has at most
// 63 characters; that of a Test may have 253, and dots.
func jobName(test *jobv1.Test) string {
	if len(validation.IsDNS1123Label(test.Name)) == 0 {
		return test.Name
	}
	return mcowner.UniqueName(validation.DNS1123LabelMaxLength, test.Name)
}
