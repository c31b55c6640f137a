package dependents_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatIsToStayBesideItsOwnerIsNotKnownToTheGarbageCollector: it would delete the dependent before the owner is looked at.
func TestWhatIsToStayBesideItsOwnerIsNotKnownToTheGarbageCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.Local.StartControllerManager(t, "garbage-collector-controller")
	r := w.spread()
	r.DependentsIn = mcowner.Clusters{Local: true}
	r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Annotations["to"] == "" {
			return nil, nil
		}
		return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
	}
	r.PolicyOf = func(owner *corev1.ConfigMap) dependents.Policy {
		return dependents.Policy{Keep: owner.Data["keep"] == "yes", Change: dependents.ChangePolicy(owner.Data["change"])}
	}
	withOverrides(r)
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if owner.Data["fails"] != "" {
			return nil, errors.New("it is not known now")
		}
		return desired(ctx, owner, target)
	}
	p := w.run(r)
	natives := func(name string) int { return len(w.mustGet(w.Local, copyOf(name)).OwnerReferences) }
	orphan := func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan" }
	ways := map[string]func(*corev1.ConfigMap){
		"owner":  orphan,
		"policy": func(cm *corev1.ConfigMap) { cm.Data["keep"] = "yes" },
		"dependent": func(cm *corev1.ConfigMap) {
			cm.Annotations["dependent."+dependents.DeletionPolicyAnnotation] = "Orphan"
		},
		"created-only": orphan,
		"suspended": func(cm *corev1.ConfigMap) {
			cm.Annotations[dependents.SuspendAnnotation] = "true"
			orphan(cm)
		},
		"not-known": func(cm *corev1.ConfigMap) {
			cm.Data["fails"] = "yes"
			orphan(cm)
		},
		"by-hand": orphan,
		"unclear": func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "orphan" },
	}
	before := map[string]*corev1.ConfigMap{}
	for name := range ways {
		owner := w.owner(name, "local")
		if name == "created-only" {
			owner.Data["change"] = string(dependents.CreateOnly)
		}
		w.create(w.Local, owner)
		before[name] = w.isCopied(w.Local, name)
		if natives(name) != 1 {
			t.Fatalf("%s: before it is to stay it has %d native owners", name, natives(name))
		}
	}
	for name, say := range ways {
		if name == "by-hand" {
			name = copyOf(name)
		}
		w.change(w.Local, name, say)
	}
	for name := range ways {
		eventually(t, name+": it has no native owner any more", func() bool { return natives(name) == 0 })
	}
	eventually(t, "all rests", p.isAtRest)
	for name := range ways {
		if w.has(w.Local, name, dependents.EventContended, "") {
			t.Errorf("%s: the native owner is put back time and again", name)
		}
	}
	w.change(w.Local, "unclear", func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.DeletionPolicyAnnotation) })
	w.change(w.Local, "policy", func(cm *corev1.ConfigMap) { cm.Data["keep"] = "" })
	w.change(w.Local, "dependent", func(cm *corev1.ConfigMap) { delete(cm.Annotations, "dependent."+dependents.DeletionPolicyAnnotation) })
	w.change(w.Local, copyOf("by-hand"), func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.DeletionPolicyAnnotation) })
	for _, name := range []string{"unclear", "policy", "dependent", "by-hand"} {
		eventually(t, name+": what is not to stay any more has its native owner again", func() bool { return natives(name) == 1 })
		if name == "by-hand" {
			w.change(w.Local, copyOf(name), orphan)
		} else {
			w.change(w.Local, name, orphan)
		}
		eventually(t, name+": it has none again", func() bool { return natives(name) == 0 })
	}
	for name := range ways {
		w.remove(w.Local, name, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	for name := range ways {
		w.isGone(w.Local, name)
		w.unharmed(w.Local, before[name])
	}
}
