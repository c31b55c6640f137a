package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestReplicasShareTheMembers with the rights of the manifests, whichever of them has a Replicator, and go on when one is killed.
func TestReplicasShareTheMembers(t *testing.T) {
	w := prepare(t, 4)
	replicas := map[string]*stage.Program{}
	for _, end := range []string{"4", "5", "6"} {
		name := "replicator-5f5d5fc56d-wxzb" + end
		t.Setenv("POD_NAME", name) // as in a Deployment
		w.run("--sharded")
		replicas[name] = w.program
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		w.add(w.Members[i], name)
	}
	const apps = 3
	for i := range apps { // of different owners, in replicas that work on different members
		create(t, w.Local, replicator(appOf(i), w.names, configMap(appOf(i), "value", "one")))
	}
	for i := range apps {
		w.has(appOf(i), "one")
		w.synced(appOf(i))
	}
	before := w.uids(apps)
	source := configMap("source", "value", "one")
	source.Labels = map[string]string{v1alpha1.SourceLabel: "true"}
	refers := replicator("refers", w.names)
	refers.Spec.References = []v1alpha1.Reference{{Kind: "ConfigMap", Name: "source"}}
	create(t, w.Local, source, refers)
	w.has("source", "one") // also in members of other replicas
	w.synced("refers")

	working := slices.DeleteFunc(slices.Sorted(maps.Keys(replicas)), func(name string) bool { return len(replicas[name].Lines("Engaged")) == 0 })
	if len(working) < 2 {
		t.Fatalf("of %d replicas, %s work on members", len(replicas), working)
	}
	replicas[working[0]].Kill()
	for i := range apps {
		w.change(appOf(i), func(r *v1alpha1.Replicator) { r.Spec.Manifests[0] = manifest(configMap(appOf(i), "value", "two")) })
	}
	for i := range apps {
		w.has(appOf(i), "two")
		w.synced(appOf(i))
	}
	for where, uid := range w.uids(apps) {
		if uid != before[where] {
			t.Errorf("%s was deleted and made anew when a replica was killed", where)
		}
	}
	for i := range apps {
		w.end(appOf(i))
		for _, name := range w.names {
			isGone(t, w.members[name], configMap(appOf(i)))
		}
	}
}

func appOf(i int) string { return fmt.Sprintf("app-%d", i) }

// has waits until all members have a ConfigMap with this value.
func (w *world) has(name, value string) {
	w.t.Helper()
	for _, member := range w.names {
		stage.Eventually(w.t, fmt.Sprintf("%s of %s says %s", name, member, value), func() bool { // once the silent replica's time is over
			cm := get(w.t, w.members[member], configMap(name))
			return cm != nil && cm.Data["value"] == value
		})
	}
}

// uids returns those of the ConfigMaps of so many apps, by where they are.
func (w *world) uids(apps int) map[string]types.UID {
	w.t.Helper()
	uids := map[string]types.UID{}
	for i := range apps {
		for _, name := range w.names {
			uids[appOf(i)+" in "+name] = get(w.t, w.members[name], configMap(appOf(i))).UID
		}
	}
	return uids
}
