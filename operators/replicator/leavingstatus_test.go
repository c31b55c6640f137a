package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestAMemberThatLeavesWellIsNoFailure of the Replicators that have chosen it, in any status meanwhile, nor in an event.
func TestAMemberThatLeavesWellIsNoFailure(t *testing.T) {
	w := prepare(t, 2)
	w.run()
	for i, name := range []string{"east", "west"} {
		account := stage.NewAccount(t, w.Members[i], memberRights())
		stage.Apply(t, w.Members[i], "config/tenant.yaml")
		stage.Join(t, w.Local, name, account.Kubeconfig(t), map[string]string{"chosen": "yes"}, objects.LeaveFinalizer)
		w.program.Writes("Engaged", "cluster="+name)
	}
	r := replicator("web", nil, configMap("a"))
	r.Spec.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"chosen": "yes"}}
	create(t, w.Local, r)
	w.condition("web", v1alpha1.ConditionSynced, dependents.ReasonDone, "2 of 2")

	watching, err := client.NewWithWatch(w.Local.Config(), client.Options{Scheme: w.Local.Client().Scheme()})
	must(t, err)
	all, err := watching.Watch(t.Context(), &v1alpha1.ReplicatorList{}, client.InNamespace(tenant))
	must(t, err)
	defer all.Stop()
	remove(t, w.Local, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east"}})
	w.condition("web", v1alpha1.ConditionSynced, dependents.ReasonDone, "1 of 1")
	for now := (&v1alpha1.Replicator{}); now.Status.Targets != 1 || now.Status.Synced != 1; {
		now = (<-all.ResultChan()).Object.(*v1alpha1.Replicator) //nolint:forcetypeassert // it watches these
		t.Logf("%+v", now.Status)
		if now.Status.Failed > 0 || strings.Contains(now.Status.NotSyncedIn, "Invalid") {
			t.Errorf("%d have failed: it is not synced in %s", now.Status.Failed, now.Status.NotSyncedIn)
		}
	}
	events := &eventsv1.EventList{}
	must(t, w.Local.Client().List(t.Context(), events, client.InNamespace(tenant)))
	for _, e := range events.Items {
		if e.Reason == dependents.EventFailed {
			t.Errorf("an event says %s: %s", e.Reason, e.Note)
		}
	}
}
