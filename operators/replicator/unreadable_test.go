package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// TestARolloutThatAnOlderCRDHasTakenStopsNoOther: nothing is done for its own Replicator, and an event says so, until somebody changes it.
func TestARolloutThatAnOlderCRDHasTakenStopsNoOther(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	const spec = `{"clusters":{"names":["east"]},"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"}}],"rollout":{"maxParallel":%d}}`
	if err := w.createRaw("large", fmt.Sprintf(spec, 3_000_000_000)); err == nil || !strings.Contains(err.Error(), "from 1 to 2147483647") {
		t.Errorf("the API server has answered %v", err)
	}
	w.takeAnyRollout()
	stage.Eventually(t, "the API server takes any number", func() bool { return w.createRaw("large", fmt.Sprintf(spec, 3_000_000_000)) == nil })
	create(t, w.Local, replicator("first", []string{"east"}, configMap("first")))
	w.run()
	w.join(w.Members[0], "east")
	w.synced("first")
	must(t, w.createRaw("larger", fmt.Sprintf(spec, 1<<62)))
	create(t, w.Local, replicator("second", []string{"east"}, configMap("second")))
	w.synced("second")
	for name, says := range map[string]string{"large": `"3000000000"`, "larger": `"4611686018427387904"`} {
		stage.Eventually(t, "an event of "+name+" quotes "+says, func() bool {
			list := &eventsv1.EventList{}
			must(t, w.Local.Client().List(t.Context(), list, client.InNamespace(tenant), client.MatchingFields{"regarding.name": name}))
			return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return strings.Contains(e.Note, "MaxParallel is "+says) })
		})
		if now := w.specOf(name); !strings.Contains(now, `"maxParallel":`+strings.Trim(says, `"`)) {
			t.Errorf("the spec of %s is %s", name, now)
		}
	}
	if get(t, w.Members[0], configMap("large")) != nil {
		t.Error("it was brought to a member")
	}
	r := w.replicator("large")
	must(t, w.Local.Client().Patch(t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"rollout":{"maxParallel":1}}}`))))
	w.synced("large")
	larger := w.replicator("larger")
	remove(t, w.Local, larger)
	isGone(t, w.Local, larger)
}

// TestAStatusWithATimeThatGoDoesNotTakeStopsNoOther, and is written anew.
func TestAStatusWithATimeThatGoDoesNotTakeStopsNoOther(t *testing.T) {
	t.Parallel()
	w := start(t, "", "east")
	create(t, w.Local, replicator("first", []string{"east"}, configMap("first")))
	w.synced("first")
	const crooked, forged = "2026-01-01t00:00:00z", `{"status":{"conditions":[{"type":"Synced","status":"True","reason":"Done","message":"","lastTransitionTime":%q}]}}`
	must(t, w.rawly().Patch(types.MergePatchType).AbsPath(pathOfReplicators, "first", "status").Body(fmt.Appendf(nil, forged, crooked)).Do(t.Context()).Error())
	create(t, w.Local, replicator("second", []string{"east"}, configMap("second")))
	w.synced("second")
	w.change("first", func(r *v1alpha1.Replicator) { r.Spec.Rollout.HaltAfter = 1 })
	stage.Eventually(t, "the status is right", func() bool {
		text, err := w.rawly().Get().AbsPath(pathOfReplicators, "first").DoRaw(t.Context())
		must(t, err)
		return !strings.Contains(string(text), crooked)
	})
	w.synced("first")
}

// takeAnyRollout makes the API server take any maxParallel, as with a CRD that has no rule for it.
func (w *world) takeAnyRollout() {
	w.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("replicators.replicator.fleet-runtime.dev")
	const rule = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rollout/properties/maxParallel/x-kubernetes-validations"
	must(w.t, w.Local.Client().Patch(w.t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"`+rule+`"}]`))))
}
