package dependents_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// reports are the results that a reconciler has given last, by owner.
type reports struct {
	t  *testing.T
	mu sync.Mutex // guards of
	of map[string][]dependents.Result
}

// reportsOf has a reconciler tell its results.
func reportsOf(t *testing.T, r *dependents.Reconciler[*corev1.ConfigMap]) *reports {
	t.Helper()
	all := &reports{t: t, of: map[string][]dependents.Result{}}
	r.Status = func(_ context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.of[owner.Name] = results
		return nil
	}
	return all
}

// first returns the result of the first cluster of an owner.
func (r *reports) first(owner string) (result dependents.Result, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of[owner]) == 0 {
		return result, false
	}
	return r.of[owner][0], true
}

// object returns what came of the first dependent of an owner.
func (r *reports) object(owner string) dependents.ObjectResult {
	result, _ := r.first(owner)
	if len(result.Objects) == 0 {
		return dependents.ObjectResult{}
	}
	return result.Objects[0]
}

// is waits until the first dependent of an owner is in one of the states, and returns its result.
func (r *reports) is(owner string, states ...dependents.State) dependents.ObjectResult {
	r.t.Helper()
	var result dependents.ObjectResult
	eventually(r.t, "a dependent of "+owner+" is "+string(states[0]), func() bool {
		result = r.object(owner)
		return slices.Contains(states, result.State)
	})
	return result
}

// withOverrides has a reconciler put the annotations of an owner that begin with the domain on the dependent.
func withOverrides(r *dependents.Reconciler[*corev1.ConfigMap]) {
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		for _, obj := range all {
			annotations := map[string]string{}
			for key, value := range owner.Annotations {
				if own, ok := strings.CutPrefix(key, "dependent."); ok {
					annotations[own] = value
				}
			}
			obj.SetAnnotations(annotations)
		}
		return all, err
	}
}

// overriding returns an owner whose dependent has an annotation.
func (w *world) overriding(name, annotation, value string) *corev1.ConfigMap {
	owner := w.owner(name, w.Members[0].Name)
	owner.Annotations["dependent."+annotation] = value
	return owner
}

func TestWhatIsTakenOver(t *testing.T) {
	t.Parallel()
	other := func(fleet string, cluster mcreconcile.ClusterName) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			ref := mcowner.Reference{Fleet: fleet, Manager: controller, Cluster: cluster, APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "u"}
			if err := mcowner.SetControllerReference(ref, cm, mcowner.ByName("member-1")); err != nil {
				t.Error(err)
			}
		}
	}
	foreign := map[string]func(cm *corev1.ConfigMap){
		"nobodys":          func(*corev1.ConfigMap) {},
		"nobodys-going":    func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"test/stay"} },
		"anothers":         other(fleetName, ""),
		"anothers-going":   func(cm *corev1.ConfigMap) { other(fleetName, "")(cm); cm.Finalizers = []string{"test/stay"} },
		"another-clusters": other(fleetName, "member-9"),
		"another-fleets":   other("other", ""),
		"unreadable":       func(cm *corev1.ConfigMap) { cm.Annotations = map[string]string{mcowner.KeyPrefix + "mine": "{"} },
		"native": func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
		},
		"anothers-native": func(cm *corev1.ConfigMap) {
			other(fleetName, "")(cm)
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
		},
	}
	cases := map[string]struct {
		policy     dependents.ConflictPolicy
		annotation string
		users      bool
		taken      string
	}{
		"fail":                  {taken: ""},
		"unowned":               {policy: dependents.AdoptUnowned, taken: "nobodys"},
		"adopt":                 {policy: dependents.Adopt, taken: "nobodys anothers another-clusters"},
		"adopt-users":           {policy: dependents.Adopt, users: true, taken: "nobodys anothers"},
		"annotation-unowned":    {annotation: "AdoptUnowned", taken: "nobodys"},
		"annotation-adopt":      {annotation: "Adopt", taken: "nobodys anothers another-clusters"},
		"annotation-fail":       {policy: dependents.Adopt, annotation: "Fail", taken: ""},
		"annotation-other-case": {policy: dependents.Adopt, annotation: "fail", taken: "refused"},
	}
	w := newWorld(t, 1)
	one := w.Members[0]
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := w.spread()
			r.Policy.Conflict = tc.policy
			if tc.users {
				r.User = func(mcreconcile.Request) string { return "" }
			}
			withOverrides(r)
			all := reportsOf(t, r)
			before := map[string]string{}
			for what, prepare := range foreign {
				owner := name + "-" + what
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf(owner)}, Data: map[string]string{"keep": "me"}}
				prepare(cm)
				w.create(one, cm)
				if strings.HasSuffix(what, "going") {
					w.remove(one, cm.Name)
				}
				before[what] = w.mustGet(one, cm.Name).ResourceVersion
				o := w.owner(owner, one.Name)
				if tc.annotation != "" {
					o.Annotations["dependent."+dependents.ConflictAnnotation] = tc.annotation
				}
				w.create(w.Local, o)
			}
			p := w.run(r)
			defer p.stop()
			for what := range foreign {
				owner := name + "-" + what
				switch taken := strings.Fields(tc.taken); {
				case tc.taken == "refused":
					got := all.is(owner, dependents.Failed)
					if !strings.Contains(got.Err.Error(), copyOf(owner)) || !strings.Contains(got.Err.Error(), dependents.ConflictAnnotation) {
						t.Errorf("the error names not the object and its annotation: %v", got.Err)
					}
				case slices.Contains(taken, what):
					got := all.is(owner, dependents.Applied, dependents.Unchanged)
					cm := w.mustGet(one, copyOf(owner))
					by, _ := mcowner.ControllerOf(cm, mcowner.ByName("member-1"))
					if by.Name != owner || cm.Data["value"] != "1" || cm.Data["keep"] != "me" || got.UID != cm.UID {
						t.Errorf("%s was taken, and has the controller %q and the data %v; the result is %v", what, by.Name, cm.Data, got)
					}
				default:
					if got := all.is(owner, dependents.Conflict); got.Object != nil {
						t.Errorf("the result shows the object of somebody else: %v", got)
					}
					if tc.users && what == "another-clusters" && strings.Contains(all.object(owner).Err.Error(), "other") &&
						!strings.Contains(all.object(owner).Err.Error(), "an owner in another cluster") {
						t.Errorf("the error names the owner of another tenant: %v", all.object(owner).Err)
					}
				}
				if cm := w.mustGet(one, copyOf(owner)); !slices.Contains(strings.Fields(tc.taken), what) && cm.ResourceVersion != before[what] {
					t.Errorf("%s was changed: %v", what, cm)
				}
			}
		})
	}
}

// TestWhatIsCreatedOnlyStays as it is, whoever changes it, or what is desired.
func TestWhatIsCreatedOnlyStays(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]dependents.Policy{
		"Policy":     {Change: dependents.CreateOnly, Conflict: dependents.AdoptUnowned},
		"Annotation": {Conflict: dependents.AdoptUnowned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			r.Policy = policy
			withOverrides(r)
			all := reportsOf(t, r)
			w.create(one, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("found")}, Data: map[string]string{"value": "0"}})
			p := w.run(r)
			for _, name := range []string{"a", "found"} {
				owner := w.owner(name, one.Name)
				if policy.Change == "" {
					owner.Annotations["dependent."+dependents.ChangeAnnotation] = "CreateOnly"
				}
				w.create(w.Local, owner)
				all.is(name, dependents.Applied, dependents.Unchanged)
			}
			if cm := w.mustGet(one, copyOf("found")); cm.Data["value"] != "1" || !isOf(cm, "found") {
				t.Errorf("what was taken over is not the owner's: %v", cm)
			}
			eventually(t, "the cache has the dependents", func() bool { return p.knows(one, w.mustGet(one, copyOf("a"))) })
			w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drift" })
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			w.change(w.Local, "found", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(t, "the dependents were looked at", func() bool {
				a, _ := all.object("a").Object.(*corev1.ConfigMap)
				return a != nil && a.Data["value"] == "drift" && all.object("a").State == dependents.Unchanged && all.object("found").State == dependents.Unchanged
			})
			eventually(t, "all is at rest", p.isAtRest)
			if a, found := w.mustGet(one, copyOf("a")), w.mustGet(one, copyOf("found")); a.Data["value"] != "drift" || found.Data["value"] != "1" {
				t.Errorf("the dependents were changed: %v, %v", a.Data, found.Data)
			}
			w.remove(one, copyOf("a"))
			eventually(t, "it is created anew", func() bool { cm := w.get(one, copyOf("a")); return cm != nil && cm.Data["value"] == "2" })
		})
	}
}

func isOf(cm *corev1.ConfigMap, owner string) bool {
	by, ok := mcowner.ControllerOf(cm, mcowner.ByName("member-1"))
	return ok && by.Name == owner
}

// TestWhatCannotBeChanged is refused, or created anew. It is never deleted for something that the API server would not take.
func TestWhatCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = append(r.Kinds, &batchv1.Job{})
	r.Policy.Keep = true // which does not keep what is created anew
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		meta := metav1.ObjectMeta{
			Namespace: owner.Namespace, Name: copyOf(owner.Name),
			Annotations: map[string]string{dependents.ImmutableAnnotation: owner.Annotations["immutable"]},
		}
		if owner.Annotations["job"] == "" {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: meta, Immutable: new(true), Data: map[string]string{"value": owner.Data["value"]}}}, nil
		}
		return []client.Object{&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			Suspend: new(true),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: owner.Data["value"]}},
			}},
		}}}, nil
	}
	all := reportsOf(t, r)
	w.run(r)
	owners := map[string]map[string]string{
		"refused": {}, "refused-job": {"job": "yes", "immutable": "Refuse"},
		"anew": {"immutable": "Recreate"}, "anew-job": {"job": "yes", "immutable": "Recreate"},
		"wrong-job": {"job": "yes", "immutable": "Recreate"}, "shared": {"immutable": "Recreate"},
	}
	uids := map[string]string{}
	for name, annotations := range owners {
		owner := w.owner(name, one.Name)
		maps.Copy(owner.Annotations, annotations)
		w.create(w.Local, owner)
		uids[name] = string(all.is(name, dependents.Applied, dependents.Unchanged).UID)
	}
	w.change(one, copyOf("shared"), func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
	})
	for name := range owners {
		w.change(w.Local, name, func(cm *corev1.ConfigMap) {
			cm.Data["value"] = "2"
			if name == "wrong-job" {
				cm.Data["value"] = "" // a container needs an image
			}
		})
	}
	for name := range owners {
		if strings.HasPrefix(name, "anew") {
			eventually(t, name+" is created anew", func() bool {
				got := all.object(name)
				return got.UID != "" && string(got.UID) != uids[name] && got.Err == nil
			})
			continue
		}
		got := all.is(name, dependents.Failed)
		if !apierrors.IsInvalid(got.Err) {
			t.Errorf("%s: the error is %v", name, got.Err)
		}
		obj := client.Object(&corev1.ConfigMap{})
		if owners[name]["job"] != "" {
			obj = &batchv1.Job{}
		}
		if err := one.Client().Get(t.Context(), got.Key, obj); err != nil || string(obj.GetUID()) != uids[name] || obj.GetDeletionTimestamp() != nil {
			t.Errorf("%s is not as it was: %v, %v", name, obj, err)
		}
	}
	if cm := w.mustGet(one, copyOf("anew")); cm.Data["value"] != "2" || !isOf(cm, "anew") {
		t.Errorf("what was created anew is %v", cm)
	}
}

// TestAKindIsNotCreatedAnewWithoutItsObjects by the policy of all dependents: what the API server refuses is a version less, in which there may be
// objects. The annotation of the CustomResourceDefinition is obeyed.
func TestAKindIsNotCreatedAnewWithoutItsObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds, r.Policy.Immutable = nil, dependents.Recreate
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		crd := w.gadgetCRD("v1", "v2")
		if owner.Data["value"] != "1" {
			crd = w.gadgetCRD("v3")
		}
		if owner.Data["value"] == "3" {
			crd.SetAnnotations(map[string]string{dependents.ImmutableAnnotation: string(dependents.Recreate)})
		}
		return []client.Object{crd}, nil
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	gadget := w.gadget("v2")
	eventually(t, "the kind is served", func() bool { return one.Client().Create(t.Context(), gadget) == nil })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the change is refused", func() bool { return told.are("a", dependents.Failed) })
	if !w.isThere(one, gadget) || gadget.GetDeletionTimestamp() != nil {
		t.Fatalf("what somebody created is gone: %v", gadget)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "3" })
	eventually(t, "the kind was created anew", func() bool { return one.Client().Create(t.Context(), w.gadget("v3")) == nil })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the CRD is gone", func() bool { return !w.isThere(one, w.gadgetCRD("v3")) })
}

// TestWhatIsToStayStays, as nobody's, when it is not desired any more, and when its owner goes.
func TestWhatIsToStayStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	kept := map[string]bool{}
	for name, policy := range map[string]dependents.Policy{"policy": {Keep: true}, "annotation": {}} {
		r := w.spread()
		r.Name, r.Policy = name, policy
		targets := r.Targets
		r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			if !strings.HasPrefix(owner.Name, name) {
				return nil, nil
			}
			return targets(ctx, owner)
		}
		withOverrides(r)
		w.run(r)
		for _, end := range []string{"retargeted", "deleted"} {
			for _, said := range []string{"", "Orphan", "Background"} {
				owner := name + "-" + end + "-" + strings.ToLower(said)
				owner = strings.TrimSuffix(owner, "-")
				kept[owner] = said == "Orphan" || policy.Keep && said == ""
				if said == "" && end == "deleted" {
					w.create(w.Local, w.owner(owner, one.Name))
				} else { // which may say nothing
					w.create(w.Local, w.overriding(owner, dependents.DeletionPolicyAnnotation, said))
				}
			}
		}
	}
	for owner, stays := range kept {
		w.isCopied(one, owner)
		if says := w.mustGet(one, copyOf(owner)).Annotations[dependents.DeletionPolicyAnnotation] == "Orphan"; says != stays {
			t.Errorf("the dependent of %s says that it is to stay: %t, want %t", owner, says, stays)
		}
		if strings.Contains(owner, "deleted") {
			w.remove(w.Local, owner)
		} else {
			w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
		}
	}
	for owner, stays := range kept {
		if !stays {
			w.isGone(one, copyOf(owner))
			continue
		}
		eventually(t, "the dependent of "+owner+" is nobody's", func() bool { return !isOf(w.mustGet(one, copyOf(owner)), owner) })
		if cm := w.mustGet(one, copyOf(owner)); cm.Data["value"] != "1" || cm.DeletionTimestamp != nil || cm.Labels[mcowner.FleetLabel] != "" {
			t.Errorf("%s has left %v", owner, cm)
		}
	}
}

// TestWhatCannotBeTakenOverStaysItsOwners: the API server refuses what another owner desires.
func TestWhatCannotBeTakenOverStaysItsOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		meta := metaOf(owner.Namespace, "shared")
		meta.Annotations = map[string]string{dependents.ConflictAnnotation: owner.Annotations["conflict"]}
		return []client.Object{&corev1.ConfigMap{ObjectMeta: meta, Immutable: new(true), Data: owner.Data}}, nil
	}
	all := reportsOf(t, r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	all.is("a", dependents.Applied, dependents.Unchanged)
	b := w.owner("b", one.Name)
	b.Annotations["conflict"], b.Data["value"] = string(dependents.Adopt), "2"
	w.create(w.Local, b)
	if got := all.is("b", dependents.Failed); !apierrors.IsInvalid(got.Err) {
		t.Errorf("the error is %v", got.Err)
	}
	eventually(t, "the program is at rest", p.isAtRest)
	if cm := w.mustGet(one, "shared"); !isOf(cm, "a") {
		t.Errorf("it is not its owner's any more: %v %v", cm.Labels, cm.Annotations)
	}
	w.remove(w.Local, "b")
	w.isGone(w.Local, "b")
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.get(one, "shared") != nil {
		t.Error("it is left when both owners are gone")
	}
}

// TestABadAnnotationStopsNothingElse: the other dependents are as desired, and the one that has it is neither written nor deleted.
func TestABadAnnotationStopsNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: "bad", Annotations: map[string]string{dependents.DeletionPolicyAnnotation: owner.Annotations["bad"]},
		}}
		good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "good"}, Data: owner.Data}
		return []client.Object{bad, good}, nil
	}
	all := reportsOf(t, r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	all.is("a", dependents.Applied, dependents.Unchanged)
	before := w.mustGet(one, "bad")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["bad"], cm.Data["value"] = "orphan", "2" })
	eventually(t, "the other one is as desired", func() bool { return w.mustGet(one, "good").Data["value"] == "2" })
	got := all.is("a", dependents.Failed)
	if !strings.Contains(got.Err.Error(), `ConfigMap `+w.ns+`/bad`) || !strings.Contains(got.Err.Error(), `"orphan"`) {
		t.Errorf("the error is %v", got.Err)
	}
	if diff := cmp.Diff(before, w.mustGet(one, "bad")); diff != "" {
		t.Errorf("it was changed (-before, +after):\n%s", diff)
	}
}
