package dependents_test

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatASecretHeldIsNotTold where it is to be changed or removed, and a policy of the member quotes what is there.
func TestWhatASecretHeldIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	const password, quotes = "s3cr3t-of-many-words", "'in use: ' + string(oldObject.data.password)"
	r := w.spread()
	r.Kinds = []client.Object{&corev1.Secret{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.Secret{
			ObjectMeta: metaOf(owner.Namespace, copyOf(owner.Name)), StringData: map[string]string{"password": owner.Data["value"]},
		}}, nil
	}
	w.run(r)
	for _, name := range []string{"goes", "changes"} {
		owner := w.owner(name, one.Name)
		owner.Data["value"] = password
		w.create(w.Local, owner)
		eventually(t, "it is there", func() bool { return w.isThere(one, &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf(name))}) })
	}
	w.refusesWith(one, "going", copyOf("goes"), quotes, admissionregistrationv1.Delete)
	w.refusesWith(one, "changing", copyOf("changes"), quotes, admissionregistrationv1.Update)
	eventually(t, "the policies hold", func() bool {
		removed := one.Client().Delete(t.Context(), &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf("goes"))}, client.DryRunAll)
		probe := &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf("changes")), StringData: map[string]string{"password": "probe"}}
		changed := one.Client().Update(t.Context(), probe, client.DryRunAll)
		return removed != nil && changed != nil && strings.Contains(changed.Error(), "in use")
	})
	w.remove(w.Local, "goes")
	w.change(w.Local, "changes", func(cm *corev1.ConfigMap) { cm.Data["value"] = "something-else" })
	w.told(w.Local, "goes", dependents.EventFailed, "the answer may quote what it holds, and is not told; its reason is Invalid")
	w.told(w.Local, "changes", dependents.EventFailed, "the answer quotes what it holds, and is not told; its reason is Invalid")
	events := &eventsv1.EventList{}
	if err := w.Local.Client().List(t.Context(), events, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Note, "czNjcjN0") || strings.Contains(e.Note, "s3cr3t") {
			t.Errorf("it is told what a Secret holds: %s", e.Note)
		}
	}
}
