package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestTheTutorialDoesWhatItSays with the files that README.md applies, from its fourth step on.
func TestTheTutorialDoesWhatItSays(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	w.run()
	east := w.Members[0]
	account := stage.NewAccount(t, east, memberRights())
	stage.Apply(t, east, "config/tenant.yaml")
	stage.Join(t, w.Local, "east", account.Kubeconfig(t), map[string]string{"size": "2"})
	w.program.Writes("Engaged", "cluster=east")

	stage.Apply(t, w.Local, "config/sample.yaml")
	twice := func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 }
	becomes(t, east, deployment("web", 1), "has two replicas, since the member's label says so", twice)
	becomes(t, east, configMap("web"), "has the name of the cluster", func(cm *corev1.ConfigMap) bool { return cm.Data["cluster"] == "east" })
	w.synced("web")
	w.condition("web", v1alpha1.ConditionProgressing, v1alpha1.ReasonNotReady, "")

	remove(t, east, deployment("web", 1))
	becomes(t, east, deployment("web", 1), "is back", twice)
	others := configMap("others")
	create(t, east, others)
	w.end("web")
	isGone(t, east, deployment("web", 1))
	isGone(t, east, configMap("web"))
	isThere(t, east, others)
}
