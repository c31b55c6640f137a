package dependents_test

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// besideSecrets returns a reconciler of owners that have a ConfigMap each, and of one that has a Secret.
func (w *world) besideSecrets() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.StateNamespace = w.ns
	r.Kinds = append(r.Kinds, &corev1.Secret{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "secret" {
			return []client.Object{&corev1.Secret{ObjectMeta: metaOf(owner.Namespace, copyOf(owner.Name))}}, nil
		}
		return desired(ctx, owner, target)
	}
	return r
}

// asSecret creates what some operators make of an object beside it: one of another kind with its name, labels and annotations.
func (w *world) asSecret(cp *mctest.ControlPlane, of *corev1.ConfigMap) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: of.Namespace, Name: of.Name, Labels: maps.Clone(of.Labels), Annotations: maps.Clone(of.Annotations),
	}}
	w.create(cp, secret)
	return secret
}

// isUntouched fails the test if an object is not as it was.
func (w *world) isUntouched(cp *mctest.ControlPlane, before client.Object) {
	w.t.Helper()
	now := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if !w.isThere(cp, now) || now.GetResourceVersion() != before.GetResourceVersion() {
		w.t.Errorf("%s of %s was deleted or changed: it has the annotations %v", before.GetName(), cp.Name, now.GetAnnotations())
	}
}

// isWorkedOnTwice changes an owner twice, and waits each time for what says so. What the first change removes is gone before the second.
func (w *world) isWorkedOnTwice(owner string, has func(value string) bool) {
	w.t.Helper()
	for _, value := range []string{"2", "3"} {
		w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		eventually(w.t, "the dependent has the value "+value, func() bool { return has(value) })
	}
}

// TestACopyInAnotherKindIsNobodys, while the owner of the original lives, and when that goes.
func TestACopyInAnotherKindIsNobodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.besideSecrets())
	other := w.owner("b", one.Name)
	other.Data["value"] = "secret"
	w.create(w.Local, other)
	w.create(w.Local, w.owner("a", one.Name))
	there := w.isCopied(one, "a")
	eventually(t, "Secrets are watched", func() bool { return w.isThere(one, &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf("b"))}) })
	secret := w.asSecret(one, there)
	eventually(t, "the copy is seen", func() bool { return p.hasRead(one, secret, &corev1.Secret{}) })
	w.isWorkedOnTwice("a", func(value string) bool { return w.mustGet(one, there.Name).Data["value"] == value })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, there.Name)
	w.isUntouched(one, secret)
}

// TestTheCollectorLeavesACopyInAnotherKind, whose original was orphaned.
func TestTheCollectorLeavesACopyInAnotherKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.besideSecrets())
	w.create(w.Local, w.owner("a", one.Name))
	there := w.isCopied(one, "a")
	secret := w.asSecret(one, there)
	w.removeAsOrphan("a")
	w.isGone(w.Local, "a")
	w.isReleased(one, there)
	p.stop()
	w.collect(func(c *orphans.Collector) { c.Kinds = append(c.Kinds, &corev1.Secret{}) })
	w.swept(one, 2)
	w.isUntouched(one, secret)
}

// TestACopyInAnotherKindIsNotOverwritten: it is in the place of what is desired.
func TestACopyInAnotherKindIsNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.run(w.besideSecrets())
	w.create(w.Local, w.owner("a", one.Name))
	secret := w.asSecret(one, w.isCopied(one, "a"))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "secret" })
	w.told(w.Local, "a", dependents.EventConflict, "of another kind")
	w.isUntouched(one, secret)
}

// TestANamespaceThatIsACopyOfADependentStays, with what is in it.
func TestANamespaceThatIsACopyOfADependentStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name, shared := w.Members[0], w.ns+"-team", w.ns+"-shared"
	r := w.inNamespaces()
	r.Kinds = append(r.Kinds, &rbacv1.ClusterRole{})
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&corev1.ConfigMap{ObjectMeta: metaOf(shared, copyOf(owner.Name)), Data: owner.Data},
		}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	has := func(value string) bool {
		cm := &corev1.ConfigMap{ObjectMeta: metaOf(shared, copyOf("a"))}
		return w.isThere(one, cm) && cm.Data["value"] == value
	}
	eventually(t, "all is there", func() bool { return has("1") && w.isThere(one, role) })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(role.Labels), Annotations: maps.Clone(role.Annotations)}}
	w.create(one, namespace)
	eventually(t, "the copy is seen", func() bool { return p.hasRead(one, namespace, &corev1.Namespace{}) })
	w.isWorkedOnTwice("a", has)
	w.isUntouched(one, namespace)
}

// withoutKind changes a dependent to what a version of the program has written that did not say its kind.
func (w *world) withoutKind(cp *mctest.ControlPlane, name string) *corev1.ConfigMap {
	w.t.Helper()
	w.change(cp, name, func(cm *corev1.ConfigMap) {
		r := w.controllerOf(cp, cm)
		r.Dependent.Kind = ""
		content, err := json.Marshal(r)
		if err != nil {
			w.t.Fatal(err)
		}
		cm.Annotations[r.Key()], cm.Annotations[mcowner.DesiredAnnotation] = string(content), "of-before"
	})
	return w.mustGet(cp, name)
}

func (w *world) controllerOf(cp *mctest.ControlPlane, obj client.Object) mcowner.Reference {
	w.t.Helper()
	r, ok := mcowner.ControllerOf(obj, mcowner.ByName(fleet.ClusterName(cp.Name)))
	if !ok {
		w.t.Fatalf("%s has no controller: %v", obj.GetName(), obj.GetAnnotations())
	}
	return r
}

// TestAReferenceThatDoesNotSayTheKindIsCompleted by one write, and removed with its owner, although what is there stays as it is.
func TestAReferenceThatDoesNotSayTheKindIsCompleted(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]dependents.ChangePolicy{"Apply": dependents.Apply, "CreateOnly": dependents.CreateOnly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			r.Policy.Change = policy
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			w.isCopied(one, "a")
			eventually(t, "all is at rest", p.isAtRest)
			p.stop()
			before := w.withoutKind(one, copyOf("a"))
			p = w.run(r)
			completed := func() bool { return w.controllerOf(one, w.mustGet(one, before.Name)).Dependent.Kind == "ConfigMap" }
			eventually(t, "the reference says the kind", completed)
			written := w.mustGet(one, before.Name)
			eventually(t, "all is at rest", p.isAtRest)
			w.unharmed(one, before)
			w.isUntouched(one, written)
			w.remove(w.Local, "a")
			w.isGone(one, before.Name)
		})
	}
}

// TestADependentThatIsDesiredInAnotherGroupIsTheSame: an API server has each Event in two groups.
func TestADependentThatIsDesiredInAnotherGroupIsTheSame(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]dependents.ChangePolicy{"Apply": dependents.Apply, "CreateOnly": dependents.CreateOnly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, now := w.Members[0], metav1.NowMicro()
			r := w.spread()
			r.Policy.Change = policy
			r.Kinds = []client.Object{&corev1.Event{}, &eventsv1.Event{}}
			r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
				meta, about := metaOf(w.ns, copyOf(owner.Name)), corev1.ObjectReference{Kind: "ConfigMap", Namespace: w.ns, Name: owner.Name}
				if owner.Data["value"] == "1" {
					return []client.Object{&corev1.Event{
						ObjectMeta: meta, InvolvedObject: about, Reason: "Tested", Action: "Test", Type: "Normal", Message: "text",
						EventTime: now, ReportingController: "example.com/test", ReportingInstance: "test",
					}}, nil
				}
				return []client.Object{&eventsv1.Event{
					ObjectMeta: meta, Regarding: about, Reason: "Tested", Action: "Test", Type: "Normal", Note: "text",
					EventTime: now, ReportingController: "example.com/test", ReportingInstance: "test",
				}}, nil
			}
			told := listen(r)
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			event := &corev1.Event{ObjectMeta: metaOf(w.ns, copyOf("a"))}
			isOf := func(group string) func() bool {
				return func() bool {
					return w.isThere(one, event) && w.controllerOf(one, event).Dependent.Group == group
				}
			}
			eventually(t, "it is there in the old group", isOf(""))
			before := event.UID
			for _, step := range []struct{ value, group string }{{"2", eventsv1.GroupName}, {"1", ""}, {"3", eventsv1.GroupName}} {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = step.value })
				eventually(t, "it is of the group "+step.group, isOf(step.group))
				eventually(t, "all is at rest", p.isAtRest)
				eventually(t, "it is as desired", func() bool {
					results := told.of("a")
					want := schema.GroupKind{Group: step.group, Kind: "Event"}
					return len(results) == 1 && results[0].Err == nil && len(results[0].Objects) == 1 && results[0].Objects[0].Kind.GroupKind() == want
				})
				if !isOf(step.group)() || event.UID != before || event.DeletionTimestamp != nil {
					t.Fatalf("it was deleted and created anew: %v", event.ObjectMeta)
				}
			}
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			if w.isThere(one, event) {
				t.Error("it was left behind")
			}
		})
	}
}
