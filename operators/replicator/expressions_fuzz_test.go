package main

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// FuzzExpressionsEnd whatever they say, with an error or with a value that is no larger than an object may be.
func FuzzExpressionsEnd(f *testing.F) {
	for _, text := range []string{
		`cluster.name + "-" + object.metadata.name`, `int(cluster.labels["size"]) * 2`, `object.list.filter(x, x > 1).map(x, {"name": string(x)})`,
		doubled("a+a", 30), doubled("[a,a]", 30) + ".map(a, a == a)", doubled("{a:a}", 30) + ".map(a, a in [a])", `{b"a": 1}[b"a"]`, `[1][[1]]`,
		strings.Repeat("[", 300), strings.Repeat("-", 300) + "1", `timestamp("2026-11-26T00:00:00Z").getHours("Europe/Berlin")`, `duration("9223372036s")`, `int()`,
	} {
		f.Add(text)
	}
	all, err := newExpressions()
	if err != nil {
		f.Fatal(err)
	}
	list := make([]any, mostValues)
	for i := range list {
		list[i] = int64(i)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 { // as the CRD has it
			t.Skip()
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "text": strings.Repeat("x", mostBytes/2), "list": list}}
		value, err := all.value(t.Context(), text, obj.Object, dependents.Target{Cluster: "east", Labels: map[string]string{"size": "3"}})
		if err != nil {
			return
		}
		written, err := json.Marshal(value)
		if err != nil || len(written) > 6*mostBytes { // a character may be written as six
			t.Errorf("%s makes %d bytes, %v", text, len(written), err)
		}
	})
}
