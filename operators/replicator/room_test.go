package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// inUse returns how many bytes of memory are in use, after what is not was collected.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one has found
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// TestSizesAreAtLeastWhatObjectsTake in memory, whatever they have.
func TestSizesAreAtLeastWhatObjectsTake(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for name, element := range map[string]string{
		"empty maps": "{},", "empty lists": "[],", "maps of one": `{"":0},`, "large numbers in maps": `{"a":1000000},`, "lists of one": "[0],", "numbers": "0,",
		"large numbers": "1000000,", "fractions": "0.5,", "texts": `"",`, "letters": `"a",`, "truths": "true,", "words": `"word",`, "maps in maps": `{"":{"":{}}},`,
		"two fields": `{"a":0,"b":0},`, "nine fields": `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0},`, "Unicode": `"\u00e9\u00e9",`,
	} {
		list := "[" + strings.Repeat(element, 300_000/len(element)) + "0]"
		checkSize(t, name, manifestWith(list).Raw)
	}
	for _, fields := range []int{8, 15, 1_000, 7_200, 20_000} {
		var all strings.Builder
		for i := range fields {
			fmt.Fprintf(&all, `"%d":%d,`, i, i+1000)
		}
		checkSize(t, fmt.Sprintf("%d fields", fields), manifestWith("{"+all.String()+`"a":0}`).Raw)
	}
}

func checkSize(t *testing.T, name string, text []byte) {
	t.Helper()
	size, err := sizeOf(text)
	must(t, err)
	before := inUse()
	obj := &unstructured.Unstructured{}
	must(t, obj.UnmarshalJSON(text))
	if takes := inUse() - before; takes > int64(size)+10_000 {
		t.Errorf("%s: %d bytes of JSON take %d of memory, and their size is %d", name, len(text), takes, size)
	} else {
		t.Logf("%s: %d bytes of JSON take %d of memory, and their size is %d", name, len(text), takes, size)
	}
	runtime.KeepAlive(obj)
}

// TestATargetTakesLittleMemoryWhateverItsObjectsHave: 1.4 MB of manifests had 62 MB of empty maps.
func TestATargetTakesLittleMemoryWhateverItsObjectsHave(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	c := &controller{}
	t.Cleanup(c.children.end)
	empties := "[" + strings.Repeat("{},", 340_000/4) + "{}]"
	few := "[" + strings.Repeat("{},", 6_000) + "{}]"
	for field, admitted := range map[string]int{empties: 0, few: 1} { // all four fit, and one that has twice more of it
		r := replicator("r", nil)
		for i := range 4 {
			r.Spec.Manifests = append(r.Spec.Manifests, raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a%d"},"x":%s}`, i, field))
		}
		r.Spec.Overrides = []v1alpha1.Override{{JSONPatch: []v1alpha1.Operation{{Op: "copy", From: "/x", Path: "/y"}, {Op: "copy", From: "/x", Path: "/z"}}}}
		before := inUse()
		all, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east"})
		if takes := inUse() - before; takes > mostOfAll || len(all) != admitted || !errors.Is(err, errTooMuchOfAll) || strings.Count(err.Error(), "8 MiB") != 1 {
			t.Errorf("%d objects of %d bytes take %d, and the error is %v", len(all), len(field), takes, err)
		}
		runtime.KeepAlive(all)
	}
}

// TestWhatOverridesMakeHasRoomOrIsTold: one could make some megabytes of each of a hundred objects.
func TestWhatOverridesMakeHasRoomOrIsTold(t *testing.T) {
	t.Parallel()
	c := &controller{}
	t.Cleanup(c.children.end)
	r := replicator("r", nil)
	for i := range 8 {
		r.Spec.Manifests = append(r.Spec.Manifests, manifest(configMap(fmt.Sprintf("cm-%d", i))))
	}
	r.Spec.Overrides = []v1alpha1.Override{{MergePatch: rawJSON(`{"x":[` + strings.Repeat("{},", 3_000) + `0]}`)}}
	all, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east"})
	if len(all) != 6 || !errors.Is(err, errTooMuchOfAll) || strings.Count(err.Error(), "spec.") != 1 {
		t.Errorf("there are %d objects, and the error is %.300v", len(all), err)
	}
}
