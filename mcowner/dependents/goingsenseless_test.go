package dependents_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestAnOwnerGoesWhateverItsRolloutSays. While its policy makes no sense it waits, as that may say that dependents are to stay.
func TestAnOwnerGoesWhateverItsRolloutSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.RolloutOf = func(owner *corev1.ConfigMap) (rollout dependents.Rollout) {
		if owner.Data["value"] != "1" {
			rollout.HaltAfter = -1
		}
		return rollout
	}
	r.PolicyOf = func(owner *corev1.ConfigMap) (policy dependents.Policy) {
		if policy.Keep = owner.Data["value"] == "kept"; strings.HasSuffix(owner.Data["value"], "senseless") {
			policy.Change = "senseless"
		}
		return policy
	}
	w.run(r)
	for _, name := range []string{"a", "b"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))

	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Data["value"] = "senseless" })
	w.remove(w.Local, "b")
	w.told(w.Local, "b", dependents.EventInvalidPolicy, "senseless")
	before := w.isCopied(one, "b")
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Data["value"] = "kept" })
	w.isGone(w.Local, "b")
	w.unharmed(one, before)
}
