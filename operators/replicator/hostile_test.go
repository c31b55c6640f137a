package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// doubled returns an expression whose value has the one before twice, so many times.
func doubled(twice string, times int) string {
	return "[[1]]" + strings.Repeat(".map(a,"+twice+")", times)
}

// nested returns JSON of maps that are so deep in each other.
func nested(depth int, leaf string) string {
	return strings.Repeat(`{"a":`, depth) + leaf + strings.Repeat("}", depth)
}

func manifestWith(field string) v1alpha1.Manifest {
	return raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"x":%s}`, field)
}

// endless is an expression that takes as long as it is let, and costs little.
func endless() string { return doubled("[a,a]", 40) + ".map(a, a == a)[0] ? 1 : 2" }

// hostile returns overrides that take days, or all memory, if they are let.
func hostile() map[string]*v1alpha1.Replicator {
	text := `"` + strings.Repeat("x", 600_000) + `"`
	empties := "[" + strings.Repeat("{},", 85_000) + "{}]"
	all := map[string]*v1alpha1.Replicator{}
	with := func(name, field string, o ...v1alpha1.Override) {
		r := replicator("r", nil, configMap("plain"))
		r.Spec.Manifests = append(r.Spec.Manifests, manifestWith(field))
		r.Spec.Overrides = o
		for i := range o {
			o[i].Target.Name = "large"
		}
		all[name] = r
	}
	jsonPatch := func(all ...v1alpha1.Operation) v1alpha1.Override { return v1alpha1.Override{JSONPatch: all} }
	copies := func(n int, from, to string) (all []v1alpha1.Operation) {
		for i := range n {
			all = append(all, v1alpha1.Operation{Op: "copy", From: from, Path: fmt.Sprintf("%s%d", to, i)})
		}
		return all
	}
	with("a deep merge patch", nested(60, text), v1alpha1.Override{MergePatch: rawJSON(`{"x":` + nested(1500, `{"b":1}`) + `}`)})
	with("a deep manifest", nested(1500, text), v1alpha1.Override{MergePatch: rawJSON(`{"x":` + nested(1500, `{"b":1}`) + `}`)})
	with("a deep path", nested(50, text), jsonPatch(v1alpha1.Operation{Op: "add", Path: "/x" + strings.Repeat("/a", 500) + "/c", Value: rawJSON("1")}))
	with("empty maps", empties, jsonPatch(copies(2, "/x", "/y")...))
	with("copies of copies", text, jsonPatch(v1alpha1.Operation{Op: "add", Path: "/m", Value: rawJSON(`{"a":[]}`)}), jsonPatch(copies(50, "/m", "/m/x")...))
	again := v1alpha1.Override{}
	for i := range 40 { // each puts all that there is into it once more
		again.CEL = append(again.CEL, v1alpha1.Expression{Path: fmt.Sprintf("/x%d", i), Expression: "object"})
	}
	with("expressions that double", "1", again)
	for name, expression := range map[string]string{
		"choices":              "1 == 1 ? 1 : " + strings.Repeat("(1 == 1?", 200) + "object" + strings.Repeat(":object)", 200) + ".a",
		"lists of lists":       endless(),
		"a value of many":      doubled("[a,a]", 40),
		"messages":             "[{'x':1}]" + strings.Repeat(".map(a,{'x':a,'y':a})", 30) + ".map(a,google.protobuf.Struct{fields:a}).size()",
		"long lists in loops":  doubled("a+a", 14) + ".map(a, a.map(b, a.map(c, [" + strings.Repeat("1,", 1500) + "1])))",
		"texts that double":    "[object.x]" + strings.Repeat(".map(a,a+a)", 40) + ".size()",
		"a regular expression": "[object.x].map(a, a.matches('" + strings.Repeat("(x*)*", 300) + "y')" + strings.Repeat("|| a.matches('(x?){999}y')", 20) + ")",
	} {
		with(name, text, expressionsOf("/y", expression))
	}
	return all
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestHostileOverridesEnd with an error, or as an object that is not too large. This process makes little of them, and others proceed.
// It is not parallel, so that nobody else allocates.
func TestHostileOverridesEnd(t *testing.T) { //nolint:paralleltest // see there
	c := &controller{}
	t.Cleanup(c.children.end)
	for name, r := range hostile() {
		before, begun := allocated(), time.Now()
		all, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east"})
		took, made := time.Since(begun), allocated()-before
		t.Logf("%s: %s, %d KiB, %d objects, %.200v", name, took.Round(time.Millisecond), made>>10, len(all), err)
		if errors.Is(err, errNoTime) {
			continue // the machine is as busy as that
		}
		if made > 32<<20 || (err == nil) != (len(all) == 2) || len(all) == 0 || errors.Is(err, dependents.ErrPending) {
			t.Errorf("%s: there are %d objects after %s and %d bytes, and the error is %.300v", name, len(all), took, made, err)
		}
	}
}

// TestOverridesOfOneNamespaceGoOnBesideThoseOfHostileOnes, of which each has more that take long than there are processes.
func TestOverridesOfOneNamespaceGoOnBesideThoseOfHostileOnes(t *testing.T) {
	t.Parallel()
	c := &controller{}
	t.Cleanup(c.children.end)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	began := make(chan struct{}, 100)
	for i := range 8 {
		running.Go(func() {
			r := withOverride(expressionsOf("/data/a", endless()))
			r.Namespace = fmt.Sprintf("hostile-%d", i%4)
			for ctx.Err() == nil {
				_, err := c.desired(ctx, r, dependents.Target{Cluster: "east"})
				if errors.Is(err, dependents.ErrPending) && !errors.Is(err, errNoTime) { // as the controller tries again
					select {
					case <-ctx.Done():
					case <-time.After(mostWait):
					}
					continue
				}
				select {
				case began <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 8 {
		<-began
	}
	honest := replicator("r", nil, configMap("plain"))
	honest.Spec.Overrides = []v1alpha1.Override{expressionsOf("/data/a", "cluster.name")}
	for range 50 {
		stage.Within(t, 2*mostTime, "overrides of another namespace are evaluated", func() bool {
			all, err := c.desired(t.Context(), honest, dependents.Target{Cluster: "east"})
			if err != nil && !errors.Is(err, dependents.ErrPending) {
				t.Fatal(err)
			}
			return err == nil && all[0].(*unstructured.Unstructured).Object["data"].(map[string]any)["a"] == "east" //nolint:forcetypeassert // a ConfigMap has data
		})
	}
}

// TestNoObjectIsDeeperThanWhatGoesThroughIt can be.
func TestNoObjectIsDeeperThanWhatGoesThroughIt(t *testing.T) {
	t.Parallel()
	for depth, deep := range map[int]bool{mostDepth - 2: false, mostDepth: true, 100_000: true} {
		for leaf, in := range map[string]string{`"[[{{\"[["`: "", "1": "[", `"\\"`: "{"} {
			text := nested(depth, leaf)
			if in == "[" {
				text = strings.Repeat("[", depth) + leaf + strings.Repeat("]", depth)
			}
			r := replicator("r", nil, configMap("plain"))
			r.Spec.Manifests = append(r.Spec.Manifests, manifestWith(text))
			all, err := (&controller{}).desired(t.Context(), r, dependents.Target{Cluster: "east"})
			if deep != errors.Is(err, errTooDeep) || deep != (err != nil) || len(all) == 0 {
				t.Errorf("%d maps in each other, of %s: there are %d objects, and the error is %.200v", depth, leaf, len(all), err)
			}
		}
	}
}
