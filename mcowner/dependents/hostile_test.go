package dependents_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatDesiredSaysAtLengthIsTriedAgain, as what it says briefly is.
func TestWhatDesiredSaysAtLengthIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	desired := r.Desired
	var known, asked atomic.Bool
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if known.Load() {
			return desired(ctx, owner, target)
		}
		asked.Store(true)
		return nil, errors.New("the template cannot be had: " + strings.Repeat("text ", 1000))
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "it is asked what is desired", asked.Load)
	eventually(t, "all is at rest", p.isAtRest)
	known.Store(true)
	w.isCopied(one, "a")
}

// TestWhatIsDesiredMayBeAnything: one object that cannot be had is told of, and what is desired beside it is applied. No error is
// longer than the status of an owner bears, nor is what an API server answers kept whole.
func TestWhatIsDesiredMayBeAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	cases := map[string]struct {
		change func(*corev1.ConfigMap)
		says   string
	}{
		"name-too-long":       {func(cm *corev1.ConfigMap) { cm.Name = strings.Repeat("n", 300) }, "is invalid"},
		"name-of-a-path":      {func(cm *corev1.ConfigMap) { cm.Name = "../../secrets/x" }, "may not contain '/'"},
		"no-name":             {func(cm *corev1.ConfigMap) { cm.Name, cm.GenerateName = "", "made-up-" }, "it has no name"},
		"no-namespace":        {func(cm *corev1.ConfigMap) { cm.Namespace = "" }, "it has no namespace"},
		"namespace-is-absent": {func(cm *corev1.ConfigMap) { cm.Namespace = "there-is-none" }, "there-is-none"},
		"annotations-too-big": {func(cm *corev1.ConfigMap) { cm.Annotations["big"] = strings.Repeat("a", 300_000) }, "annotations"},
		"annotation-of-bytes": {func(cm *corev1.ConfigMap) { cm.Annotations["bytes"] = "\xff\xfe\x00" }, ""},
		"data-too-big":        {func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"big": strings.Repeat("d", 2_000_000)} }, "data-too-big"},
		"label-is-invalid":    {func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "no label!"} }, "label"},
		"wave-is-no-number":   {func(cm *corev1.ConfigMap) { cm.Annotations[dependents.WaveAnnotation] = "first" }, "32 bits"},
		"policy-unknown":      {func(cm *corev1.ConfigMap) { cm.Annotations[dependents.ConflictAnnotation] = strings.Repeat("?", 5000) }, dependents.ConflictAnnotation},
		"quoted-whole":        {func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": strings.Repeat("l", 900_000)} }, "label"},
		"a-finalizer":         {func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"not a finalizer"} }, "finalizer"},
		"a-forged-owner":      {func(cm *corev1.ConfigMap) { cm.Annotations[mcowner.KeyPrefix+"forged"] = "{}" }, ""},            // it is left out
		"of-another-fleet":    {func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{mcowner.FleetLabel: "another"} }, ""}, // this too
		"an-owner-of-its-own": {func(cm *corev1.ConfigMap) { cm.OwnerReferences = []metav1.OwnerReference{{}} }, "ownerReferences"},
	}
	var mu sync.Mutex
	longest := 0
	r := w.spread()
	r.Status = func(_ context.Context, _ *corev1.ConfigMap, results []dependents.Result) error {
		mu.Lock()
		defer mu.Unlock()
		for _, result := range results {
			if result.Err != nil {
				longest = max(longest, len(result.Err.Error()))
			}
			if status, ok := errors.AsType[*apierrors.StatusError](result.Err); ok {
				longest = max(longest, len(status.ErrStatus.Message), status.ErrStatus.Details.Size())
			}
		}
		return nil
	}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		hostile, good := &corev1.ConfigMap{}, &corev1.ConfigMap{}
		hostile.Namespace, hostile.Name, hostile.Annotations = w.ns, owner.Name+"-hostile", map[string]string{}
		good.Namespace, good.Name = w.ns, owner.Name+"-good"
		cases[owner.Name].change(hostile)
		return []client.Object{hostile, good}, nil
	}
	w.run(r)
	for name := range cases {
		w.create(w.Local, w.owner(name, one.Name))
	}
	for name, c := range cases {
		eventually(t, "what is desired beside "+name+" is there", func() bool { return w.get(one, name+"-good") != nil })
		if c.says != "" {
			w.told(w.Local, name, dependents.EventFailed, c.says)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most := 3000; longest > most {
		t.Errorf("an error has %d bytes, want %d at most", longest, most)
	}
}

// TestMetadataOfAnotherTypeIsRefused: the object stays as it is, with what its annotations say. They were dropped together, and with them that the
// object is to stay.
func TestMetadataOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	cases := map[string]struct {
		field string // of metadata
		value any
		says  string
	}{
		"annotation-is-a-number": {"annotations", map[string]any{dependents.DeletionPolicyAnnotation: "Orphan", "size": int64(7)}, "metadata.annotations.size is no text"},
		"annotation-is-an-int":   {"annotations", map[string]any{dependents.DeletionPolicyAnnotation: "Orphan", "size": 7}, "metadata.annotations.size is no text"},
		"label-is-a-truth":       {"labels", map[string]any{"a": "b", "c": true}, "metadata.labels.c is no text"},
		"labels-are-a-list":      {"labels", []any{"a"}, "metadata.labels is no map"},
		"finalizers-are-a-map":   {"finalizers", map[string]any{"a": "b"}, "metadata.finalizers is no list"},
		"owner-is-a-text":        {"ownerReferences", []any{"a"}, "metadata.ownerReferences[0] is no map"},
		"namespace-is-a-number":  {"namespace", int64(5), "metadata.namespace is no text"},
		"name-is-a-number":       {"name", int64(5), "metadata.name is no text"},
	}
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		u.SetNamespace(w.ns)
		u.SetName(copyOf(owner.Name))
		u.SetLabels(map[string]string{"a": "b"})
		u.SetAnnotations(map[string]string{dependents.DeletionPolicyAnnotation: "Orphan"})
		if c := cases[owner.Name]; owner.Data["crooked"] != "" {
			u.Object["metadata"].(map[string]any)[c.field] = c.value //nolint:forcetypeassert // it was made so
		}
		return []client.Object{u}, nil
	}
	w.run(r)
	for name := range cases {
		w.create(w.Local, w.owner(name, one.Name))
	}
	for name := range cases {
		w.isCopied(one, name)
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Data["crooked"] = "yes" })
	}
	for name, c := range cases {
		w.told(w.Local, name, dependents.EventFailed, c.says)
		if copied := w.isCopied(one, name); copied.Annotations[dependents.DeletionPolicyAnnotation] != "Orphan" || copied.Labels["a"] != "b" {
			t.Errorf("%s: its metadata is %+v", name, copied.ObjectMeta)
		}
	}
}

// TestWhatIsDesiredMaySayWhatIsTheServersToSay: it is left out, as is the hash of what was desired.
func TestWhatIsDesiredMaySayWhatIsTheServersToSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "status": map[string]any{"a": "b"}}}
		u.SetNamespace(w.ns)
		u.SetName(copyOf(owner.Name))
		u.SetUID("forged")
		u.SetResourceVersion("1")
		u.SetGeneration(7)
		u.SetDeletionTimestamp(new(metav1.Now()))
		u.SetAnnotations(map[string]string{mcowner.DesiredAnnotation: "forged"})
		return []client.Object{u}, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	copied := w.isCopied(one, "a")
	if copied.UID == types.UID("forged") || copied.Annotations[mcowner.DesiredAnnotation] == "forged" {
		t.Errorf("it was not left out: %+v", copied.ObjectMeta)
	}
	w.remove(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// uncopyable is an object that cannot be copied.
type uncopyable struct{ *unstructured.Unstructured }

// DeepCopyObject implements runtime.Object.
func (uncopyable) DeepCopyObject() runtime.Object { panic("it is not to be copied") }

// TestWhatIsDesiredMayHaveTheTypesOfGo: what JSON has for them is applied, and the annotations that are for the controller are read. Of what JSON
// has nothing for, or what panics, one is told, and the rest is applied.
func TestWhatIsDesiredMayHaveTheTypesOfGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	loop := map[string]any{}
	loop["again"] = loop
	cases := map[string]struct {
		content map[string]any
		says    string
	}{
		"strings": {map[string]any{"data": map[string]string{"n": "1"}}, ""},
		"lists":   {map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/test"}}, "data": map[string]any{"n": "1"}}, ""},
		"ints":    {map[string]any{"immutable": false, "data": map[string]any{"n": "1"}, "metadata": map[string]any{"generation": 1}}, ""},
		"waves":   {map[string]any{"metadata": map[string]any{"annotations": map[string]string{dependents.WaveAnnotation: "first"}}}, "32 bits"},
		"any":     {map[string]any{"data": map[any]any{"n": "1"}}, "its content is no JSON"},
		"a-loop":  {map[string]any{"data": loop}, "its content is no JSON"},

		"uncopyable": {nil, "it is not to be copied"},
	}
	of := func(owner string) client.Object {
		u, metadata := &unstructured.Unstructured{Object: map[string]any{}}, map[string]any{"namespace": w.ns, "name": owner + "-hostile"}
		maps.Copy(u.Object, cases[owner].content)
		given, _ := u.Object["metadata"].(map[string]any)
		maps.Copy(metadata, given)
		u.Object["metadata"] = metadata
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		if owner == "uncopyable" {
			return uncopyable{u}
		}
		return u
	}
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: owner.Name + "-good"}}
		return []client.Object{of(owner.Name), good}, nil
	}
	w.run(r)
	for name := range cases {
		w.create(w.Local, w.owner(name, one.Name))
	}
	for name, c := range cases {
		eventually(t, "what is desired beside "+name+" is there", func() bool { return w.get(one, name+"-good") != nil })
		if c.says != "" {
			w.told(w.Local, name, dependents.EventFailed, c.says)
			continue
		}
		eventually(t, name+" is there", func() bool { cm := w.get(one, name+"-hostile"); return cm != nil && cm.Data["n"] == "1" })
	}
	w.change(one, "lists-hostile", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
}
