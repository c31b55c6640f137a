package dependents

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// longestError is how much of an error a slice has, in bytes. The others are as much as there can be of what names a dependent:
// one with a longer name was desired, and is nowhere.
const (
	longestError     = 512
	longestKind      = 63 + 1 + 63 + 1 + 253
	longestNamespace = 63
	longestName      = 253
	longestUID       = 64
)

// entries returns what slices say of clusters, ordered by name.
func (a *accounting) entries() []v1alpha1.Cluster {
	results := a.results()
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	entries := make(map[mcreconcile.ClusterName]v1alpha1.Cluster, len(results))
	for _, r := range results {
		if record.IsName(r.Cluster) { // else it is no member's, and could not be read as it was written
			entries[r.Cluster] = a.o.entryLocked(r)
		}
	}
	return withRecord(entries, a.record.Sites)
}

// entryLocked returns what slices say of a cluster. Of one that was not looked at since the program began, they go on to say what
// they said before, for a while: a restart is no news.
func (o *ownerState) entryLocked(r Result) v1alpha1.Cluster {
	e, k := entryOf(r), &o.known
	before, ok := k.before[string(r.Cluster)]
	switch {
	case !ok:
	case time.Now().Before(k.until):
		before.Targeted = r.Targeted
		return before
	case before.Error == e.Error:
		e.Since = before.Since
	}
	return e
}

// withRecord adds where there may be dependents.
func withRecord(entries map[mcreconcile.ClusterName]v1alpha1.Cluster, sites []record.Site) []v1alpha1.Cluster {
	for name, e := range entries {
		e.MayHaveDependents, e.Identities = false, nil
		entries[name] = e
	}
	for _, s := range sites {
		e := entries[s.Name]
		e.Name, e.MayHaveDependents = string(s.Name), true
		if s.Identity != "" {
			e.Identities = append(e.Identities, s.Identity)
		}
		entries[s.Name] = e
	}
	all := make([]v1alpha1.Cluster, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, entries[name])
	}
	return all
}

func entryOf(r Result) v1alpha1.Cluster {
	e := v1alpha1.Cluster{Name: string(r.Cluster), Targeted: r.Targeted, Error: sliceText(r.Err)}
	if r.Err != nil {
		e.Since = stamp(r.Since)
	}
	for _, o := range r.Objects {
		s := named(o)
		s.State, s.Error, s.Since = string(o.State), sliceText(o.Err), stamp(o.Since)
		if o.Err == nil && isAsDesired(o.State) { // which of these it is changes with each look
			s.State, s.Since = string(Applied), metav1.Time{}
		}
		e.Objects = append(e.Objects, s)
	}
	return e
}

// named returns what names a dependent, as slices have it.
func named(o ObjectResult) v1alpha1.Object {
	return v1alpha1.Object{
		Kind:      oneline.Text(o.Kind.Kind+"."+o.Kind.Version+"."+o.Kind.Group, longestKind),
		Namespace: oneline.Text(o.Key.Namespace, longestNamespace),
		Name:      oneline.Text(o.Key.Name, longestName),
		UID:       types.UID(oneline.Text(string(o.UID), longestUID)),
	}
}

func isAsDesired(s State) bool { return s == Applied || s == Unchanged || s == Drifted }

// sliceText returns an error as slices have it. Why a cluster is not ready changes with each attempt to reach it: that is not said.
func sliceText(err error) string {
	if state, ok := errors.AsType[*fleet.StateError](err); ok && state.Status.State != "" {
		return oneline.Text(fmt.Sprintf("%v (%s: %s)", state.Err, state.Status.State, state.Status.Reason), longestError)
	}
	return oneline.Text(text(err), longestError)
}

// stamp returns a time as it is stored.
func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

// age gives what came of a cluster the times that its slice has, when the cluster is looked at for the first time since
// the program began.
func (k *knownSlices) age(r *report) {
	before, ok := k.before[string(r.Cluster)]
	if !ok || errors.Is(r.Err, ErrPending) {
		return
	}
	delete(k.before, string(r.Cluster))
	if r.Err != nil && before.Error == sliceText(r.Err) {
		r.Since = sinceBefore(before.Since, r.Since)
	}
	old := make(map[[3]string]v1alpha1.Object, len(before.Objects))
	for _, o := range before.Objects {
		old[[3]string{o.Kind, o.Namespace, o.Name}] = o
	}
	for i, o := range r.Objects {
		n := named(o)
		was, ok := old[[3]string{n.Kind, n.Namespace, n.Name}]
		if ok && was.State == string(o.State) && !was.Since.IsZero() {
			r.Objects[i].Since = sinceBefore(was.Since, o.Since)
		}
	}
}

// sinceBefore returns since when something is so that was noted before: not from a time to come, whatever clock has said that.
func sinceBefore(noted metav1.Time, now time.Time) time.Time {
	if noted.After(now) {
		return now
	}
	return noted.Time
}
