package dependents

import (
	"cmp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhichKindsAreDroppedFromTheRecord: those of which it is certain that there is nothing in any cluster of it, while nobody puts
// something anywhere.
func TestWhichKindsAreDroppedFromTheRecord(t *testing.T) {
	t.Parallel()
	pod, secret := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	one, two := record.Site{Name: "one", Identity: "1"}, record.Site{Name: "two", Identity: "2"}
	looked := func(at record.Site, some ...schema.GroupVersionKind) *kindsLook {
		l := &kindsLook{in: "engagement", at: at, some: some}
		for _, gvk := range []schema.GroupVersionKind{pod, secret} {
			if !slices.Contains(some, gvk) {
				l.none = append(l.none, gvk.GroupKind())
			}
		}
		return l
	}
	cases := map[string]struct {
		one, two *kindsLook
		change   func(o *ownerState)
		record   record.Record
		want     []schema.GroupVersionKind
		later    bool
	}{
		"nowhere":                 {one: looked(one, pod), two: looked(two, pod), want: []schema.GroupVersionKind{secret}},
		"in one":                  {one: looked(one, pod), two: looked(two, pod, secret)},
		"one was not looked at":   {one: looked(one, pod)},
		"one was another cluster": {one: looked(one, pod), two: looked(record.Site{Name: "two", Identity: "3"}, pod)},
		"of a name before": {
			one: looked(one, pod), two: looked(two, pod), record: record.Record{Sites: []record.Site{{Name: "two", Identity: "0"}}},
		},
		"something was given up":     {one: looked(one, pod), two: looked(two, pod), record: record.Record{GivenUp: true}},
		"the record is nonsense":     {one: looked(one, pod), two: looked(two, pod), record: record.Record{Nonsense: true}},
		"all but one that stays":     {one: looked(one), two: looked(two), want: []schema.GroupVersionKind{secret}},
		"the owner is being deleted": {one: looked(one, pod), two: looked(two, pod), change: func(o *ownerState) { o.plan.mode = finishing }},
		"it is about to be noted": {one: looked(one, pod), two: looked(two, pod), change: func(o *ownerState) {
			o.parts["one"].kinds = []schema.GroupVersionKind{secret}
		}},
		"a run may put something there": {one: looked(one, pod), two: looked(two, pod), later: true, change: func(o *ownerState) { o.begin("two") }},
		"a run is over": {one: looked(one, pod), two: looked(two, pod), want: []schema.GroupVersionKind{secret}, change: func(o *ownerState) {
			v, _ := o.begin("two")
			o.end(v)
		}},
		"another plan is not done":   {one: looked(one, pod), two: looked(two, pod), later: true, change: func(o *ownerState) { o.plan.seq++ }},
		"something has come late":    {one: looked(one, pod), two: looked(two, pod), change: func(o *ownerState) { o.sees("two", secret) }},
		"something is to be written": {one: looked(one, pod), two: looked(two, pod), change: func(o *ownerState) { o.wants("two", []schema.GroupVersionKind{secret}) }},
		"what hung may still come late": {one: looked(one, pod), change: func(o *ownerState) {
			o.wants("two", []schema.GroupVersionKind{secret})
			o.noteHung(dependentKey{cluster: "two", kind: secret.GroupKind(), name: types.NamespacedName{Name: "a"}}, true)
			o.parts["two"].present.note(looked(two, pod))
		}},
		"what was seen since it was looked": {one: looked(one, pod), change: func(o *ownerState) {
			o.partLocked("two")
			o.sees("two", secret)
			o.parts["two"].present.note(looked(two, pod))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			o := newOwnerState(mcreconcile.Request{}, "1")
			o.replan(&plan{owner: owner, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{"one", "two"}}, testKeys)
			for in, look := range map[mcreconcile.ClusterName]*kindsLook{"one": tc.one, "two": tc.two} {
				if look != nil {
					o.report(in, view{plan: o.plan}, report{look: look})
				}
			}
			if tc.change != nil {
				tc.change(o)
			}
			for _, p := range o.parts {
				p.seq = 1
			}
			r := tc.record
			r.Sites, r.Kinds = append(r.Sites, one, two), []schema.GroupVersionKind{pod, secret}
			if got := o.droppedKindsLocked(r); !slices.Equal(got, tc.want) || o.kindsLater != tc.later {
				t.Errorf("dropped are %v, and there may be more later: %t; want %v and %t", got, o.kindsLater, tc.want, tc.later)
			}
		})
	}
}

// TestWhatAnOwnerNeedsOnceItWasLookedAt: what is there, and what is about to be noted.
func TestWhatAnOwnerNeedsOnceItWasLookedAt(t *testing.T) {
	t.Parallel()
	pod, secret, job := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
		schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	testKeys.Write(owner, record.Record{Sites: []record.Site{{Name: "one"}, {Name: "two"}}, Kinds: []schema.GroupVersionKind{pod, secret}}, true)
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.replan(&plan{owner: owner, ref: mcowner.Reference{UID: "1"}}, testKeys)
	look := &kindsLook{in: "engagement", some: []schema.GroupVersionKind{secret}, none: []schema.GroupKind{pod.GroupKind()}}
	o.report("one", view{plan: o.plan}, report{look: look, kinds: []schema.GroupVersionKind{job}})
	for name, want := range map[mcreconcile.ClusterName][]schema.GroupVersionKind{"one": {job, secret}, "two": {pod, secret}} {
		if got := o.needs(name); !slices.Equal(got, want) {
			t.Errorf("in %s it needs %v, want %v", name, got, want)
		}
	}
	if may, known := o.presence("one", "engagement", pod.GroupKind()); may || !known {
		t.Errorf("there may be a Pod: %t, which is known: %t", may, known)
	}
	if _, known := o.presence("one", "another engagement", pod.GroupKind()); known {
		t.Error("in another engagement it is known what is there")
	}
}

// TestAKindStaysInTheVersionThatWasDesired, whatever the version in which something of it is seen: both may be watched.
func TestAKindStaysInTheVersionThatWasDesired(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "example.com", Kind: "Gadget"}
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.wants("one", []schema.GroupVersionKind{kind.WithVersion("v2")})
	o.sees("one", kind.WithVersion("v1"))
	if got, want := o.presentKinds("one"), []schema.GroupVersionKind{kind.WithVersion("v2")}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

// TestWhatASweepFindsIsLookedAtOnce, and only where no run knows of it: for owners that are known. Whoever may write an object may name any owner.
// Where the owner is to have nothing, it is looked at until it is gone.
func TestWhatASweepFindsIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	pod, secret := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	one := record.Site{Name: "one", Identity: "1"}
	for name, tc := range map[string]struct {
		owner  func(*mcowner.Reference)
		in     mcreconcile.ClusterName
		kind   schema.GroupVersionKind
		looked *kindsLook
		want   int
	}{
		"that it has no more":            {kind: secret, looked: &kindsLook{in: "engagement", at: one, some: []schema.GroupVersionKind{pod}}, want: 1},
		"that it has":                    {kind: pod, looked: &kindsLook{in: "engagement", at: one, some: []schema.GroupVersionKind{pod}}},
		"that is noted, before a look":   {kind: pod},
		"that is not, before a look":     {kind: secret, want: 1},
		"where it is to have nothing":    {kind: secret, in: "two", want: 3},
		"that does not say its kind":     {kind: secret, owner: func(r *mcowner.Reference) { r.Dependent.Kind = "" }},
		"of an owner that is not known":  {kind: secret, owner: func(r *mcowner.Reference) { r.Name = "b" }},
		"of one that had the name":       {kind: secret, owner: func(r *mcowner.Reference) { r.UID = "before" }},
		"of one in a cluster of another": {kind: secret, owner: func(r *mcowner.Reference) { r.ClusterUID = "another" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placing().engine
			c.works = &feed[work]{}
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			testKeys.Write(owner, record.Record{Sites: []record.Site{one}, Kinds: []schema.GroupVersionKind{pod}}, true)
			ref := ownerNamed("a")
			o := c.ledger.of(ref.Request(), ref.UID)
			o.replan(&plan{owner: owner, ref: ref}, testKeys)
			ref.Dependent.Kind = tc.kind.Kind
			o.report("one", view{plan: o.plan}, report{look: tc.looked})
			if tc.owner != nil {
				tc.owner(&ref)
			}
			for range 3 { // sweeps, or dependents
				c.found(ref, cmp.Or(tc.in, "one"), tc.kind)
			}
			if got := len(c.works.early); got != tc.want {
				t.Errorf("the cluster is worked on %d times, want %d", got, tc.want)
			}
		})
	}
}
