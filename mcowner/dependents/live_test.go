package dependents

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

func TestWhatAValueContains(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	type l = []any
	cases := map[string]struct {
		live, want any
		is         bool
	}{
		"The same text":                 {"a", "a", true},
		"Another text":                  {"b", "a", false},
		"Another version":               {"1.1", "1.10", false},
		"A quantity in other words":     {"1", "1000m", false}, // it may as well be none
		"No text":                       {nil, "", false},
		"The same number":               {int64(1), int64(1), true},
		"A number of another type":      {int64(1), float64(1), true},
		"Another number":                {int64(2), int64(1), false},
		"A number as a text":            {"1", int64(1), false},
		"Yes":                           {true, true, true},
		"No":                            {nil, false, false},
		"More fields":                   {m{"a": "1", "b": "2"}, m{"a": "1"}, true},
		"Fewer fields":                  {m{"a": "1"}, m{"a": "1", "b": "2"}, false},
		"Deeper":                        {m{"a": m{"b": "1", "c": "2"}}, m{"a": m{"b": "1"}}, true},
		"Deeper, and another":           {m{"a": m{"b": "2"}}, m{"a": m{"b": "1"}}, false},
		"Empty, and left out":           {m{}, m{"a": m{}}, true},
		"Empty, and left out at all":    {nil, m{"a": m{"b": m{}}}, true},
		"Empty, and something is there": {m{"a": m{"b": "1"}}, m{"a": m{}}, true},
		"Something, and left out":       {nil, m{"a": m{"b": "1"}}, false},
		"Something beside an empty one": {m{}, m{"a": m{}, "b": "1"}, false},
		"The same items":                {l{"a", "b"}, l{"a", "b"}, true},
		"Items in another order":        {l{"b", "a"}, l{"a", "b"}, false},
		"One item more":                 {l{"a", "b"}, l{"a"}, false},
		"One item less":                 {l{"a"}, l{"a", "b"}, false},
		"No items":                      {nil, l{}, true},
		"No items, and one is there":    {l{"a"}, l{}, false},
		"Items, and none is there":      {nil, l{"a"}, false},
		"Items with more fields":        {l{m{"a": "1", "b": "2"}}, l{m{"a": "1"}}, true},
		"Items with other fields":       {l{m{"a": "2"}}, l{m{"a": "1"}}, false},
		"A list for a map":              {l{}, m{"a": "1"}, false},
		"The same selector":             {m{"selector": m{"a": "1"}}, m{"selector": m{"a": "1"}}, true},
		"A selector of more":            {m{"selector": m{"a": "1", "b": "2"}}, m{"selector": m{"a": "1"}}, false},
		"A selector of labels":          {m{"podSelector": m{"matchLabels": m{"a": "1"}}}, m{"podSelector": m{}}, false},
		"Deeper, and all is empty":      {m{"a": m{"selector": m{"b": "1"}}}, m{"a": m{"selector": m{}}}, false},
		"An empty one, and left out":    {m{}, m{"selector": m{}}, true},
		"More peers of one kind":        {m{"from": l{m{"x": m{}, "y": m{}}}}, m{"from": l{m{"x": m{}}}}, false},
		"A map for a text":              {m{}, "a", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := contains(tc.live, tc.want); got != tc.is {
				t.Errorf("contains(%v, %v) is %t, want %t", tc.live, tc.want, got, tc.is)
			}
		})
	}
}

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"ours": "yes"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "a", Image: "nginx:1.10", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
		}}}}},
	}
}

// TestWhatIsAsApplied needs no write after a restart: it was written from this very configuration, and has it still.
func TestWhatIsAsApplied(t *testing.T) {
	t.Parallel()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment())
	if err != nil {
		t.Fatal(err)
	}
	config := &unstructured.Unstructured{Object: withoutNulls(content)}
	config.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	config.SetAnnotations(map[string]string{"key": "value"})
	unstructured.RemoveNestedField(config.Object, "status")
	if _, err := sealed(config); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"As it was":             {func(*appsv1.Deployment) {}, true},
		"Defaulted":             {func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(10)) }, true},
		"Defaulted in an item":  {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev" }, true},
		"With a status":         {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, true},
		"With labels of others": {func(d *appsv1.Deployment) { d.Labels["theirs"] = "yes" }, true},
		"Scaled":                {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(4)) }, false},
		"Another image":         {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "nginx:1.1" }, false},
		"With a sidecar": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "b"})
		}, false},
		"Without our label":         {func(d *appsv1.Deployment) { d.Labels = nil }, false},
		"Another value of ours":     {func(d *appsv1.Deployment) { d.Labels["ours"] = "no" }, false},
		"Of another configuration":  {func(d *appsv1.Deployment) { d.Annotations[mcowner.DesiredAnnotation] = hash{}.String() }, false},
		"Of no known configuration": {func(d *appsv1.Deployment) { delete(d.Annotations, mcowner.DesiredAnnotation) }, false},
		"Without our annotation":    {func(d *appsv1.Deployment) { delete(d.Annotations, "key") }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := deployment()
			live.Annotations = config.GetAnnotations()
			tc.change(live)
			if got := isAsApplied(live, config); got != tc.want {
				t.Errorf("isAsApplied is %t, want %t", got, tc.want)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: content}
			before := u.DeepCopy()
			if got := isAsApplied(u, config); got != tc.want {
				t.Errorf("of an object without a type it is %t, want %t", got, tc.want)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("the object itself was changed, which may be the cache's:\n%s", diff)
			}
		})
	}
}

// TestWhatMattersOfAnObject changes its hash, and nothing else does. Where the API server counts changes, these are not looked
// at one by one.
func TestWhatMattersOfAnObject(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change           func(*appsv1.Deployment)
		counted, content bool // it matters with a generation, and without
	}{
		"Nothing":              {change: func(*appsv1.Deployment) {}},
		"The version":          {change: func(d *appsv1.Deployment) { d.ResourceVersion = "8" }},
		"The managers":         {change: func(d *appsv1.Deployment) { d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}} }},
		"The status":           {change: func(d *appsv1.Deployment) { d.Status.Replicas = 3 }},
		"The spec":             {change: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(4)) }, content: true},
		"The generation":       {change: func(d *appsv1.Deployment) { d.Generation++ }, counted: true, content: true},
		"A label":              {change: func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, counted: true, content: true},
		"An annotation":        {change: func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, counted: true, content: true},
		"A finalizer":          {change: func(d *appsv1.Deployment) { d.Finalizers = []string{"a"} }, counted: true, content: true},
		"An owner of its own":  {change: func(d *appsv1.Deployment) { d.OwnerReferences = []metav1.OwnerReference{{UID: "1"}} }, counted: true, content: true},
		"A template's content": {change: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "b" }, content: true},
	}
	hashed := func(obj client.Object) hash {
		t.Helper()
		h, err := liveHash(obj)
		if err != nil {
			t.Error(err)
		}
		return h
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for generation, matters := range map[int64]bool{0: tc.content, 5: tc.counted} {
				before := deployment()
				before.Generation = generation
				after := before.DeepCopy()
				tc.change(after)
				if changed := hashed(before) != hashed(after); changed != matters && name != "The generation" {
					t.Errorf("with the generation %d the hash has changed: %t, want %t", generation, changed, matters)
				}
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
				if err != nil {
					t.Fatal(err)
				}
				u := &unstructured.Unstructured{Object: content}
				same := u.DeepCopy()
				if hashed(u) != hashed(after) {
					t.Error("of an object without a type it is another")
				}
				if diff := cmp.Diff(same, u); diff != "" {
					t.Errorf("the object itself was changed, which may be the cache's:\n%s", diff)
				}
			}
		})
	}
	five, six := deployment(), deployment()
	five.Generation, six.Generation = 5, 6
	if hashed(five) == hashed(six) {
		t.Error("a change that the API server has counted does not matter")
	}
}

func TestHashesAreText(t *testing.T) {
	t.Parallel()
	if a, b := hashOf([]byte("a")).String(), hashOf([]byte("b")).String(); a == b || len(a) != 32 {
		t.Errorf("the hashes are %s and %s", a, b)
	}
}

// TestAnnotationsOverrideThePolicy of the reconciler, and what they say that makes no sense is told.
func TestAnnotationsOverrideThePolicy(t *testing.T) {
	t.Parallel()
	all := Policy{Conflict: Adopt, Change: CreateOnly, Immutable: Recreate, Suspend: true, Keep: true}
	cases := map[string]struct {
		policy     Policy
		owner, obj map[string]string
		want       Policy
		wrong      []string
	}{
		"Nothing": {},
		"Said by the reconciler": {
			policy: all, want: all,
		},
		"Said by the object": {
			obj:  map[string]string{ConflictAnnotation: "Adopt", ChangeAnnotation: "CreateOnly", ImmutableAnnotation: "Recreate", SuspendAnnotation: "true", DeletionPolicyAnnotation: "Orphan"},
			want: Policy{Conflict: Adopt, Change: CreateOnly, Immutable: Recreate, Suspend: true},
		},
		"Taken back by the object": {
			policy: all,
			obj:    map[string]string{ConflictAnnotation: "Fail", ChangeAnnotation: "Apply", ImmutableAnnotation: "Refuse", SuspendAnnotation: "false"},
			want:   Policy{Conflict: Fail, Change: Apply, Immutable: Refuse, Keep: true},
		},
		"Suspended by the owner":                  {owner: map[string]string{SuspendAnnotation: "true"}, want: Policy{Suspend: true}},
		"Suspended by the owner, not this object": {owner: map[string]string{SuspendAnnotation: "true"}, obj: map[string]string{SuspendAnnotation: "false"}},
		"The owner cannot take it back":           {policy: all, owner: map[string]string{SuspendAnnotation: "false"}, want: all},
		"The owner's other annotations are none":  {owner: map[string]string{ConflictAnnotation: "Adopt"}},
		"Nonsense": {
			owner: map[string]string{SuspendAnnotation: "yes"},
			obj:   map[string]string{ConflictAnnotation: "adopt", ChangeAnnotation: "x", ImmutableAnnotation: "y", SuspendAnnotation: "True", DeletionPolicyAnnotation: "orphan"},
			wrong: []string{ConflictAnnotation, ChangeAnnotation, ImmutableAnnotation, SuspendAnnotation + ` is "yes"`, SuspendAnnotation + ` is "True"`, DeletionPolicyAnnotation, `["Fail" "AdoptUnowned" "Adopt"]`},
		},
		"Too long": {obj: map[string]string{ConflictAnnotation: strings.Repeat("x", 1000)}, wrong: []string{ConflictAnnotation}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, obj := &corev1.ConfigMap{}, &corev1.ConfigMap{}
			owner.Annotations, obj.Annotations = tc.owner, tc.obj
			got, err := tc.policy.of(owner, obj)
			if len(tc.wrong) == 0 {
				if err != nil || got != tc.want {
					t.Errorf("the policy is %+v, want %+v; %v", got, tc.want, err)
				}
				return
			}
			for _, text := range tc.wrong {
				if !strings.Contains(fmt.Sprint(err), text) || len(err.Error()) > 900 {
					t.Errorf("the error says nothing of %s: %v", text, err)
				}
			}
		})
	}
	for name, p := range map[string]Policy{"Conflict": {Conflict: "x"}, "Change": {Change: "x"}, "Immutable": {Immutable: "x"}} {
		if err := p.validate(); err == nil || !strings.Contains(err.Error(), "Policy."+name) {
			t.Errorf("validate returns %v, want an error about %s", err, name)
		}
	}
}
