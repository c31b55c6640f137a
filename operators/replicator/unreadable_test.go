package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// deepest is how deep maps and lists of an object may be in each other for an API server.
const deepest = 10_000

// deepReplicators returns the spec of Replicators that are as deep as any, by the field in which they are.
func deepReplicators() map[string]string {
	const clusters, cm = `"clusters":{"names":["east"]}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"}%s}`
	plain := fmt.Sprintf(clusters+`,"manifests":[`+cm+`]`, "")
	return map[string]string{
		"manifest":    fmt.Sprintf(`{`+clusters+`,"manifests":[`+cm+`]}`, `,"x":`+nested(deepest-4, "1")),
		"merge-patch": fmt.Sprintf(`{%s,"overrides":[{"mergePatch":{"x":%s}}]}`, plain, nested(deepest-5, "1")),
		"json-patch":  fmt.Sprintf(`{%s,"overrides":[{"jsonPatch":[{"op":"add","path":"/x","value":%s}]}]}`, plain, nested(deepest-6, "1")),
	}
}

// rawly is a client of the hub that decodes nothing.
func (w *world) rawly() *rest.RESTClient {
	w.t.Helper()
	cfg := rest.CopyConfig(w.Local.Config())
	cfg.APIPath, cfg.NegotiatedSerializer = "/apis", scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(cfg)
	must(w.t, err)
	return c
}

const pathOfReplicators = "/apis/replicator.fleet-runtime.dev/v1alpha1/namespaces/" + tenant + "/replicators"

func (w *world) createRaw(name, spec string) error {
	body := fmt.Sprintf(`{"apiVersion":"replicator.fleet-runtime.dev/v1alpha1","kind":"Replicator","metadata":{"name":%q},"spec":%s}`, name, spec)
	return w.rawly().Post().AbsPath(pathOfReplicators).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.t.Context()).Error()
}

// specOf returns the spec of a Replicator as it is stored.
func (w *world) specOf(name string) string {
	w.t.Helper()
	text, err := w.rawly().Get().AbsPath(pathOfReplicators, name).DoRaw(w.t.Context())
	must(w.t, err)
	r := struct{ Spec json.RawMessage }{}
	must(w.t, json.Unmarshal(text, &r))
	return string(r.Spec)
}

// TestAReplicatorThatIsTooDeepStopsNoOther, neither in the list at the start nor in the watch. It is told what is wrong, and stays as it is.
func TestAReplicatorThatIsTooDeepStopsNoOther(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	all := map[string]string{} // what was stored, by name
	deep := func(when string) {
		for field, spec := range deepReplicators() {
			name := when + "-" + field
			must(t, w.createRaw(name, spec))
			all[name] = w.specOf(name)
		}
	}
	deep("listed")
	create(t, w.Local, replicator("first", []string{"east"}, configMap("first")))
	w.run()
	w.join(w.Members[0], "east")
	w.synced("first")
	deep("watched")
	create(t, w.Local, replicator("second", []string{"east"}, configMap("second")))
	w.synced("second")
	for name, spec := range all {
		where := map[string]string{"manifest": "spec.manifests[0]", "merge-patch": "spec.overrides[0] of ConfigMap deep: mergePatch", "json-patch": "jsonPatch[0].value"}
		_, field, _ := strings.Cut(name, "-")
		w.condition(name, v1alpha1.ConditionSynced, "Failed", where[field]+": its maps and lists are more than 64 deep")
		if r := w.replicator(name); len(r.Finalizers) == 0 {
			t.Errorf("%s has no finalizer", name)
		}
		if now := w.specOf(name); now != spec || len(now) < 5*deepest {
			t.Errorf("the spec of %s has %d bytes, and had %d", name, len(now), len(spec))
		}
		r := w.replicator(name)
		remove(t, w.Local, r)
		isGone(t, w.Local, r)
	}
}

// TestASpecThatCannotBeDecodedStopsNoOther: its own Replicator is told so until somebody changes it, and has in members what it had. It can be deleted.
func TestASpecThatCannotBeDecodedStopsNoOther(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	const spec = `{"clusters":{"names":["east"]},"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"}}],"rollout":{%s}}`
	const large, almost = `"maxParallel":3000000000`, `"haltAfter":1.0000000001`
	if err := w.createRaw("large", fmt.Sprintf(spec, "large", large)); err == nil || !strings.Contains(err.Error(), "from 1 to 2147483647") {
		t.Errorf("the API server has answered %v", err)
	}
	w.takeAnyNumber()
	stage.Eventually(t, "the API server takes any number", func() bool { return w.createRaw("large", fmt.Sprintf(spec, "large", large)) == nil })
	create(t, w.Local, replicator("first", []string{"east"}, configMap("first"), configMap("beside")))
	w.run()
	w.join(w.Members[0], "east")
	w.synced("first")
	must(t, w.createRaw("almost", fmt.Sprintf(spec, "almost", almost)))
	orphan := replicator("orphan", []string{"east"}, configMap("orphan"))
	orphan.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	create(t, w.Local, orphan, replicator("second", []string{"east"}, configMap("second")))
	w.synced("orphan")
	w.synced("second")
	for _, name := range []string{"first", "orphan"} {
		w.patch(name, `{"spec":{"clusters":{"names":["other"]},"rollout":{`+almost+`}}}`)
	}
	for name, says := range map[string]string{"large": "3000000000", "almost": "1.0000000001", "first": "1.0000000001", "orphan": "rollout.haltAfter"} {
		w.condition(name, v1alpha1.ConditionSynced, v1alpha1.ReasonInvalid, says)
		stage.Eventually(t, "an event of "+name+" says "+says, func() bool {
			list := &eventsv1.EventList{}
			must(t, w.Local.Client().List(t.Context(), list, client.InNamespace(tenant), client.MatchingFields{"regarding.name": name}))
			return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
				return strings.Contains(e.Note, "the spec cannot be decoded") && strings.Contains(e.Note, says)
			})
		})
	}
	if now := w.specOf("almost"); !strings.Contains(now, almost) {
		t.Errorf("the spec is %s", now)
	}
	create(t, w.Local, replicator("third", []string{"east"}, configMap("third")))
	w.synced("third")
	for name, is := range map[string]bool{"large": false, "almost": false, "first": true, "orphan": true} {
		if there := get(t, w.Members[0], configMap(name)) != nil; there != is {
			t.Errorf("what %s has is in the member: %t", name, there)
		}
	}
	w.Members[0].Stop(t)
	w.condition("second", v1alpha1.ConditionSynced, "Unreachable", "east")
	stage.Eventually(t, "so does its status", func() bool { return w.replicator("first").Status.NotSyncedIn == "east (Unreachable)" })
	w.Members[0].Restart(t)
	w.synced("second")
	remove(t, w.Members[0], configMap("beside"))
	becomes(t, w.Members[0], configMap("beside"), "created anew", func(*corev1.ConfigMap) bool { return true })
	stage.Eventually(t, "its status says that the member is back", func() bool { return w.replicator("first").Status.NotSyncedIn == "east (Pending)" })
	w.condition("first", v1alpha1.ConditionSynced, v1alpha1.ReasonInvalid, "1.0000000001")
	w.patch("large", `{"spec":{"rollout":{"maxParallel":1}}}`)
	w.synced("large")
	for _, name := range []string{"almost", "first", "orphan"} {
		r := w.replicator(name)
		remove(t, w.Local, r)
		isGone(t, w.Local, r)
	}
	isGone(t, w.Members[0], configMap("first"))
	if get(t, w.Members[0], configMap("orphan")) == nil {
		t.Error("what was to stay was removed")
	}
}

// TestAStatusThatCannotBeDecodedStopsNoOther, and is written anew, also of a Replicator whose spec cannot be decoded either.
func TestAStatusThatCannotBeDecodedStopsNoOther(t *testing.T) {
	t.Parallel()
	w := start(t, "", "east")
	w.takeAnyNumber()
	const spec = `{"clusters":{"names":["east"]},"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"almost"}}],"rollout":{"haltAfter":2.0000000001}}`
	stage.Eventually(t, "the API server takes any number", func() bool { return w.createRaw("almost", spec) == nil })
	w.condition("almost", v1alpha1.ConditionSynced, v1alpha1.ReasonInvalid, "2.0000000001")
	create(t, w.Local, replicator("first", []string{"east"}, configMap("first")))
	w.synced("first")
	const condition = `"conditions":[{"type":"Synced","status":"True","reason":"Done","message":"","lastTransitionTime":%q}]`
	for i, crooked := range []string{"2026-01-01t00:00:00z", "1.0000000001"} {
		forged := []string{fmt.Sprintf(condition, crooked), `"failed":` + crooked}[i]
		for _, name := range []string{"first", "almost"} {
			patch := []byte(`{"status":{` + forged + `}}`)
			must(t, w.rawly().Patch(types.MergePatchType).AbsPath(pathOfReplicators, name, "status").Body(patch).Do(t.Context()).Error())
		}
		other := fmt.Sprint("other", i)
		create(t, w.Local, replicator(other, []string{"east"}, configMap(other)))
		w.synced(other)
		for _, name := range []string{"first", "almost"} {
			w.patch(name, fmt.Sprintf(`{"spec":{"suspend":%t}}`, i == 0))
			stage.Eventually(t, "the status of "+name+" has no "+crooked, func() bool {
				text, err := w.rawly().Get().AbsPath(pathOfReplicators, name).DoRaw(t.Context())
				must(t, err)
				return !strings.Contains(string(text), crooked)
			})
		}
	}
	w.synced("first")
	w.condition("almost", v1alpha1.ConditionSynced, v1alpha1.ReasonInvalid, "2.0000000001")
}

// patch changes a Replicator, without decoding it.
func (w *world) patch(name, patch string) {
	w.t.Helper()
	must(w.t, w.rawly().Patch(types.MergePatchType).AbsPath(pathOfReplicators, name).Body([]byte(patch)).Do(w.t.Context()).Error())
}

// takeAnyNumber makes the API server take any maxParallel, as with a CRD that has no rule for it, and 1.0000000001 for haltAfter and for failed of
// the status, as one of Kubernetes 1.35 does.
func (w *world) takeAnyNumber() {
	w.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("replicators.replicator.fleet-runtime.dev")
	const schema = "/spec/versions/0/schema/openAPIV3Schema/properties/"
	must(w.t, w.Local.Client().Patch(w.t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(`[
		{"op":"remove","path":"`+schema+`spec/properties/rollout/properties/maxParallel/x-kubernetes-validations"},
		{"op":"replace","path":"`+schema+`spec/properties/rollout/properties/haltAfter/type","value":"number"},
		{"op":"replace","path":"`+schema+`status/properties/failed/type","value":"number"}]`))))
}
