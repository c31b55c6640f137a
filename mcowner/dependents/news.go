package dependents

import (
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// since returns since when something is so, which has changed now or is as before.
func since(before time.Time, changed bool) time.Time {
	if changed || before.IsZero() {
		return time.Now()
	}
	return before
}

// aged returns the results of objects with the times since which they are so.
func aged(before, now []ObjectResult) []ObjectResult {
	type key struct {
		kind schema.GroupKind
		name types.NamespacedName
	}
	old := make(map[key]ObjectResult, len(before))
	for _, o := range before {
		old[key{o.Kind.GroupKind(), o.Key}] = o
	}
	for i, o := range now {
		b, was := old[key{o.Kind.GroupKind(), o.Key}]
		now[i].Since = since(b.Since, !was || b.State != o.State)
	}
	return now
}

// text returns what an error says, as far as that does not change with each attempt, empty for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return steady(err.Error())
}

// ownPort is that of a connection which ended: "read tcp 10.0.0.1:53422->10.0.0.2:443", as webhooks have it, too.
var ownPort = regexp.MustCompile(`:[0-9]+->`)

// steady returns a text without what differs between attempts that fail alike.
func steady(text string) string { return ownPort.ReplaceAllLiteralString(text, "->") }

// sameResult reports whether nothing has changed that a status may show.
func sameResult(a, b Result) bool {
	return a.Targeted == b.Targeted && text(a.Err) == text(b.Err) && text(a.Unready) == text(b.Unready) &&
		slices.EqualFunc(a.Objects, b.Objects, func(x, y ObjectResult) bool {
			return x.Kind == y.Kind && x.Key == y.Key && x.UID == y.UID && x.State == y.State && text(x.Err) == text(y.Err) &&
				versionOf(x.Object) == versionOf(y.Object)
		})
}

func versionOf(obj client.Object) string {
	if obj == nil {
		return ""
	}
	return obj.GetResourceVersion()
}
