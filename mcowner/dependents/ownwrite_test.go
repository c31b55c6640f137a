package dependents

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestAnOwnWriteIsKnownAsAPIServersStoreIt, whichever is first: its event, or its answer.
func TestAnOwnWriteIsKnownAsAPIServersStoreIt(t *testing.T) {
	now := metav1.Date(2030, time.January, 2, 3, 4, 5, 678, time.UTC)
	written := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"},
		Status:     appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: "Synced", Status: corev1.ConditionTrue, LastTransitionTime: now}}},
	}
	stored := written.DeepCopy()
	stored.ResourceVersion = "2"
	stored.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	changed := stored.DeepCopy()
	changed.ResourceVersion, changed.Status.Replicas = "3", 1

	t.Run("the event", func(t *testing.T) {
		l := newLedger()
		answered := l.writing("hub", written)
		if !l.isOwn("hub", stored) || answered(stored, nil) || !l.isOwn("hub", stored) || l.isOwn("hub", changed) {
			t.Error("it is not taken for the controller's own write, or another one is")
		}
	})
	t.Run("it is restored from a backup", func(t *testing.T) {
		l := newLedger()
		l.writing("hub", written)(stored, nil)
		passes := l.predicate("hub").Update
		if passes(event.UpdateEvent{ObjectOld: written, ObjectNew: stored}) || !passes(event.UpdateEvent{ObjectOld: changed, ObjectNew: stored}) {
			t.Error("it is not planned anew, or an own write is no more taken for one")
		}
	})
	t.Run("the API server has defaults of the status", func(t *testing.T) {
		l := newLedger()
		defaulted := stored.DeepCopy()
		defaulted.Status.Replicas = 1
		if l.writing("hub", written)(defaulted, nil) || !l.isOwn("hub", defaulted) || l.isOwn("hub", changed) {
			t.Error("it is not taken for the controller's own write, or another one is")
		}
	})
	t.Run("nothing is stored, and somebody changes the status", func(t *testing.T) {
		l := newLedger()
		answered := l.writing("hub", written)
		if !l.isOwn("hub", changed) || !answered(written, nil) {
			t.Error("the owner is not planned anew, although the event of another one was taken for that of the write")
		}
	})
	t.Run("the answer", func(t *testing.T) {
		l := newLedger()
		if l.writing("hub", written)(stored, nil) || !l.isOwn("hub", stored) || l.isOwn("hub", changed) {
			t.Error("it is not taken for the controller's own write, or another one is")
		}
	})
}

// TestAnOwnerIsWrittenAsItWasRead: what somebody else has stored meanwhile is not lost.
func TestAnOwnerIsWrittenAsItWasRead(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{name: "copier"}, &plan{})
	a.plan = a.o.plan
	err := a.writeOwner(t.Context(), &corev1.ConfigMap{}, func(_ context.Context, patch client.Patch, by client.FieldOwner) error {
		changes, err := patch.Data(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Labels: map[string]string{"a": "b"}}})
		if err != nil || !strings.Contains(string(changes), `"resourceVersion":"1"`) || by != "copier" {
			t.Errorf("%s sends %s: %v", by, changes, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
