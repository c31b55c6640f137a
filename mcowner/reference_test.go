package mcowner_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// cart is a reference to a Deployment of the cluster "east".
func cart(change ...func(*mcowner.Reference)) mcowner.Reference {
	r := mcowner.Reference{
		Fleet: "payments", Cluster: "east", APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "cart", UID: "1",
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func named(name string) func(*mcowner.Reference) { return func(r *mcowner.Reference) { r.Name = name } }

func withUID(uid types.UID) func(*mcowner.Reference) {
	return func(r *mcowner.Reference) { r.UID = uid }
}

func of(fleet, manager string) func(*mcowner.Reference) {
	return func(r *mcowner.Reference) { r.Fleet, r.Manager = fleet, manager }
}

func in(cluster mcreconcile.ClusterName) func(*mcowner.Reference) {
	return func(r *mcowner.Reference) { r.Cluster = cluster }
}

func newDependent() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", Labels: map[string]string{"a": "b"}}}
}

func mustSet(t *testing.T, set func(mcowner.Reference, client.Object, mcowner.ClusterID) error, r mcowner.Reference, obj client.Object) {
	t.Helper()
	if err := set(r, obj, mcowner.ClusterID{Name: "west", UID: r.Dependent.ClusterUID, ByName: true}); err != nil {
		t.Fatal(err)
	}
}

func TestAReferenceIsReadAsItWasWritten(t *testing.T) {
	written := cart(of("payments", "copier"), func(r *mcowner.Reference) { r.ClusterUID = "of-east" })
	obj := newDependent()
	mustSet(t, mcowner.SetControllerReference, written, obj)

	read, err := mcowner.References(obj, mcowner.ByName("west"))
	if err != nil {
		t.Fatal(err)
	}
	written.Controller = true
	written.Dependent = mcowner.Location{Cluster: "west", Namespace: "shop", Name: "settings"}
	if diff := cmp.Diff([]mcowner.Reference{written}, read); diff != "" {
		t.Errorf("References (-written, +read):\n%s", diff)
	}
	wantLabels := map[string]string{"a": "b", mcowner.FleetLabel: "payments", mcowner.OwnerClusterLabel: "east", written.Key(): "copier"}
	if diff := cmp.Diff(wantLabels, obj.Labels); diff != "" {
		t.Errorf("labels (-want, +got):\n%s", diff)
	}
	if len(obj.OwnerReferences) > 0 {
		t.Errorf("native owner references %v point to another cluster", obj.OwnerReferences)
	}
}

func TestAReferenceIsToAnObjectThatExists(t *testing.T) {
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1"}}
	r, err := mcowner.ReferenceTo("payments", mcowner.ByName("east"), owner, scheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cart(), r); diff != "" {
		t.Errorf("ReferenceTo (-want, +got):\n%s", diff)
	}
	cases := map[string]struct {
		fleet string
		owner client.Object
	}{
		"NoUID":      {"payments", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cart"}}},
		"NoName":     {"payments", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "1"}}},
		"NoFleet":    {"", owner},
		"NoDNSLabel": {"Payments!", owner},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := mcowner.ReferenceTo(tc.fleet, mcowner.ByName("east"), tc.owner, scheme.Scheme); !errors.Is(err, mcowner.ErrInvalid) {
				t.Errorf("ReferenceTo returned %v, want ErrInvalid", err)
			}
		})
	}
}

func TestKeysTellOwnersApart(t *testing.T) {
	keys := map[string]mcowner.Reference{}
	for _, r := range []mcowner.Reference{
		cart(), cart(in("west")), cart(in("")), cart(named("basket")), cart(of("other", "")), cart(of("payments", "copier")),
		cart(func(r *mcowner.Reference) { r.Namespace = "" }), cart(func(r *mcowner.Reference) { r.Kind = "StatefulSet" }),
		cart(func(r *mcowner.Reference) { r.APIVersion = "v1" }),
		cart(in("ea"), func(r *mcowner.Reference) { r.Namespace = "stshop" }),
		cart(in(mcreconcile.ClusterName(strings.Repeat("long", 70))), named(strings.Repeat("n", 253))),
	} {
		key := r.Key()
		if other, taken := keys[key]; taken {
			t.Errorf("%v and %v have the same key", r, other)
		}
		keys[key] = r
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			t.Errorf("the key of %v is no label key: %v", r, errs)
		}
	}
	same := cart(withUID("2"), func(r *mcowner.Reference) { r.APIVersion, r.Controller = "apps/v1beta1", true })
	if same.Key() != cart().Key() {
		t.Error("an owner that was created anew, or is read in another version, has another key")
	}
}

func TestWhoMayBecomeTheController(t *testing.T) {
	native := func(kind, name string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "n", Controller: new(true)}}
		}
	}
	set := func(set func(mcowner.Reference, client.Object, mcowner.ClusterID) error, r mcowner.Reference) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { _ = set(r, cm, mcowner.ByName("west")) }
	}
	annotated := func(key, value string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Annotations = map[string]string{key: value} }
	}
	const admiralty = "multicluster.admiralty.io/controller-reference"
	cases := map[string]struct {
		before func(*corev1.ConfigMap)
		owner  mcowner.Reference
		want   error // nil, ErrMalformed, or an AlreadyOwnedError of any kind
	}{
		"Nobodys":                  {func(*corev1.ConfigMap) {}, cart(), nil},
		"ItsOwn":                   {set(mcowner.SetControllerReference, cart()), cart(), nil},
		"OfOneThatWasCreatedAnew":  {set(mcowner.SetControllerReference, cart()), cart(withUID("2")), nil},
		"OfAnother":                {set(mcowner.SetControllerReference, cart(named("basket"))), cart(), errOwned},
		"OfAnotherCluster":         {set(mcowner.SetControllerReference, cart(in("north"))), cart(), errOwned},
		"OfAnotherManager":         {set(mcowner.SetControllerReference, cart(of("payments", "a"))), cart(of("payments", "b")), errOwned},
		"OwnedNotControlled":       {set(mcowner.SetOwnerReference, cart(named("basket"))), cart(), nil},
		"OwnedByAnotherFleet":      {set(mcowner.SetOwnerReference, cart(of("other", ""))), cart(), errOwned},
		"LabelOfAnotherFleet":      {func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{mcowner.FleetLabel: "other"} }, cart(), errOwned},
		"NativeController":         {native("Deployment", "cart"), cart(), errOwned},
		"NativelyTheSame":          {native("Deployment", "cart"), cart(in("west")), nil},
		"NativelyOneElsewhere":     {native("Deployment", "cart"), cart(in("west"), func(r *mcowner.Reference) { r.Namespace = "else" }), errOwned},
		"NativelyAnother":          {native("Deployment", "basket"), cart(in("west")), errOwned},
		"NotReadable":              {annotated(cart().Key(), "{"), cart(), mcowner.ErrMalformed},
		"AdmiraltysOwn":            {annotated(admiralty, `{"apiVersion":"apps/v1","kind":"Deployment","name":"cart","uid":"1","controller":true,"clusterName":"east","namespace":"shop"}`), cart(), nil},
		"AdmiraltysOfAnother":      {annotated(admiralty, `{"apiVersion":"apps/v1","kind":"Deployment","name":"cart","uid":"1","controller":true,"clusterName":"north","namespace":"shop"}`), cart(), errOwned},
		"AdmiraltysNotReadable":    {annotated(admiralty, `{"apiVersion":`), cart(), mcowner.ErrMalformed},
		"AdmiraltysIncomplete":     {annotated(admiralty, `{}`), cart(), mcowner.ErrMalformed},
		"ThatCannotBeWritten":      {func(*corev1.ConfigMap) {}, cart(withUID("")), mcowner.ErrInvalid},
		"WithAManagerThatIsNoName": {func(*corev1.ConfigMap) {}, cart(of("payments", "No Name")), mcowner.ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := newDependent()
			tc.before(obj)
			before := obj.DeepCopy()
			err := mcowner.SetControllerReference(tc.owner, obj, mcowner.ByName("west"))
			if owned, ok := errors.AsType[*mcowner.AlreadyOwnedError](err); ok {
				err = errOwned
				if owned.Error() == "" || owned.Dependent.Name != "settings" {
					t.Errorf("the error %q does not name the dependent", owned)
				}
			}
			if !errors.Is(err, tc.want) {
				t.Fatalf("SetControllerReference returned %v, want %v", err, tc.want)
			}
			if tc.want != nil {
				if diff := cmp.Diff(before, obj); diff != "" {
					t.Errorf("it was refused, and has changed (-before, +after):\n%s", diff)
				}
				return
			}
			if controller, ok := mcowner.ControllerOf(obj, mcowner.ByName("west")); !ok || !controller.Same(tc.owner) {
				t.Errorf("the controller is %v", controller)
			}
		})
	}
}

var errOwned = errors.New("owned by somebody else")

func TestSeveralOwners(t *testing.T) {
	obj := newDependent()
	pristine := obj.DeepCopy()
	mustSet(t, mcowner.SetControllerReference, cart(), obj)
	mustSet(t, mcowner.SetOwnerReference, cart(named("basket")), obj)
	mustSet(t, mcowner.SetOwnerReference, cart(in("west"), named("local")), obj)
	if r, err := mcowner.References(obj, mcowner.ByName("west")); err != nil || len(r) != 3 {
		t.Fatalf("References returned %v, %v, want three", r, err)
	}
	if len(obj.OwnerReferences) != 1 || obj.OwnerReferences[0].Name != "local" || ptr.Deref(obj.OwnerReferences[0].Controller, false) {
		t.Errorf("the native owner references are %v, want one to the owner in the same cluster", obj.OwnerReferences)
	}

	mcowner.RemoveReference(cart(), obj)
	if _, ok := mcowner.ControllerOf(obj, mcowner.ByName("west")); ok {
		t.Error("the controller was removed, and is there")
	}
	if obj.Labels[mcowner.FleetLabel] != "payments" {
		t.Error("the object has other owners, and lost the label of the fleet")
	}
	if cluster := obj.Labels[mcowner.OwnerClusterLabel]; cluster != "east" {
		t.Errorf("the object has an owner in east, and says it is of %q", cluster)
	}
	mcowner.RemoveReference(cart(named("basket")), obj)
	if cluster := obj.Labels[mcowner.OwnerClusterLabel]; cluster != "west" {
		t.Errorf("the only owner left is in west, and the object says it is of %q", cluster)
	}
	mcowner.RemoveReference(cart(in("west"), named("local")), obj)
	if diff := cmp.Diff(pristine, obj, cmp.Transformer("NilIsEmpty", func(m map[string]string) map[string]string {
		if m == nil {
			return map[string]string{}
		}
		return m
	}), cmp.Transformer("Native", func(o []metav1.OwnerReference) int { return len(o) })); diff != "" {
		t.Errorf("all owners were removed (-before, +after):\n%s", diff)
	}
}

func TestTheNativeReferenceIsSetWhereItReaches(t *testing.T) {
	cases := map[string]struct {
		owner mcowner.Reference
		want  bool
	}{
		"SameClusterAndNamespace": {cart(in("west")), true},
		"OwnerWithoutNamespace":   {cart(in("west"), func(r *mcowner.Reference) { r.Namespace = "" }), true},
		"AnotherNamespace":        {cart(in("west"), func(r *mcowner.Reference) { r.Namespace = "else" }), false},
		"AnotherCluster":          {cart(), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := newDependent()
			mustSet(t, mcowner.SetControllerReference, tc.owner, obj)
			if has := metav1.GetControllerOf(obj) != nil; has != tc.want {
				t.Errorf("has a native controller reference: %v, want %v", has, tc.want)
			}
			mustSet(t, mcowner.SetControllerReference, tc.owner, obj)
			if len(obj.OwnerReferences) > 1 {
				t.Errorf("setting it again has made %v", obj.OwnerReferences)
			}
		})
	}
}

// A copy has the annotations of the original, and is nobody's.
func TestACopyOfADependentHasNoOwner(t *testing.T) {
	original := newDependent()
	mustSet(t, mcowner.SetControllerReference, cart(), original)
	copies := map[string]struct {
		in     mcreconcile.ClusterName
		change func(*corev1.ConfigMap)
	}{
		"InAnotherCluster":   {"south", func(*corev1.ConfigMap) {}},
		"InAnotherNamespace": {"west", func(cm *corev1.ConfigMap) { cm.Namespace = "else" }},
		"OfAnotherName":      {"west", func(cm *corev1.ConfigMap) { cm.Name = "else" }},
	}
	for name, tc := range copies {
		t.Run(name, func(t *testing.T) {
			obj := original.DeepCopy()
			tc.change(obj)
			if r, err := mcowner.References(obj, mcowner.ByName(tc.in)); err != nil || len(r) > 0 {
				t.Errorf("References returned %v, %v, want none", r, err)
			}
		})
	}
	if _, ok := mcowner.ControllerOf(original, mcowner.ByName("west")); !ok {
		t.Error("the original has no controller")
	}
	generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "x-"}}
	mustSet(t, mcowner.SetControllerReference, cart(), generated)
	generated.Name = "x-1"
	if _, ok := mcowner.ControllerOf(generated, mcowner.ByName("west")); !ok {
		t.Error("an object that was given its name has no controller")
	}
}

func TestAReferenceThatWasChangedByHandIsRefused(t *testing.T) {
	obj := newDependent()
	mustSet(t, mcowner.SetControllerReference, cart(), obj)
	key := cart().Key()
	content := obj.Annotations[key]
	for name, annotations := range map[string]map[string]string{
		"OtherOwner":     {key: strings.Replace(content, "cart", "basket", 1)},
		"OtherKey":       {mcowner.KeyPrefix + "mine": content},
		"NoJSON":         {key: "east/shop/cart"},
		"WrongType":      {key: `["cart"]`},
		"Empty":          {key: ""},
		"Null":           {key: "null"},
		"NoUID":          {key: strings.Replace(content, `"uid":"1"`, `"uid":""`, 1)},
		"TwoControllers": {key: content, cart(named("basket")).Key(): mustJSON(t, obj, cart(named("basket")))},
	} {
		t.Run(name, func(t *testing.T) {
			changed := obj.DeepCopy()
			changed.Annotations = annotations
			r, err := mcowner.References(changed, mcowner.ByName("west"))
			if !errors.Is(err, mcowner.ErrMalformed) || len(r) > 0 {
				t.Errorf("References returned %v, %v, want ErrMalformed", r, err)
			}
		})
	}
}

// mustJSON returns the annotation that a controller reference becomes on an object of "west".
func mustJSON(t *testing.T, obj client.Object, r mcowner.Reference) string {
	t.Helper()
	r.Controller = true
	r.Dependent = mcowner.Location{Cluster: "west", Namespace: obj.GetNamespace(), Name: obj.GetName()}
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestUniqueNamesAreUniqueAndValid(t *testing.T) {
	long := strings.Repeat("x", 300)
	names := map[string][]string{}
	for _, parts := range [][]string{
		{"a", "b-c"}, {"a-b", "c"}, {"a", "b", "c"}, {"a-b-c"}, {"A-b-c"}, {long}, {long + "x"}, {""}, {}, {"ä", "ö"}, {"--"}, {"kube.system"},
	} {
		for _, most := range []int{14, 20, 63} {
			name := mcowner.UniqueName(most, parts...)
			if len(name) > most {
				t.Errorf("%q of %q has %d characters, %d are allowed", name, parts, len(name), most)
			}
			if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
				t.Errorf("%q of %q is no DNS label: %v", name, parts, errs)
			}
			if other, taken := names[name]; taken && !cmp.Equal(other, parts) {
				t.Errorf("%q and %q have the name %q", parts, other, name)
			}
			names[name] = parts
		}
	}
}

// FuzzReferences reads whatever annotations say, and what was read can be written and read again.
func FuzzReferences(f *testing.F) {
	obj := newDependent()
	if err := mcowner.SetControllerReference(cart(), obj, mcowner.ByName("west")); err != nil {
		f.Fatal(err)
	}
	key := cart().Key()
	f.Add(key, obj.Annotations[key])
	f.Add(key, `{"apiVersion":"a/b/c"}`)
	f.Add("multicluster.admiralty.io/controller-reference",
		`{"apiVersion":"v1","kind":"Pod","name":"nginx","uid":"u","controller":true,"blockOwnerDeletion":true,"clusterName":"c","namespace":"n"}`)
	f.Fuzz(func(t *testing.T, key, content string) {
		obj := newDependent()
		obj.Annotations = map[string]string{key: content}
		annotations := maps.Clone(obj.Annotations)
		read, err := mcowner.References(obj, mcowner.ByName("west"))
		if diff := cmp.Diff(annotations, obj.Annotations); diff != "" {
			t.Fatalf("reading has changed the annotations:\n%s", diff)
		}
		if err != nil {
			if !errors.Is(err, mcowner.ErrMalformed) || len(read) > 0 {
				t.Fatalf("References returned %v, %v", read, err)
			}
			return
		}
		for _, r := range read {
			if r.Name == "" || r.UID == "" || r.Kind == "" {
				t.Fatalf("%+v refers to nobody", r)
			}
			if r.Fleet == "" {
				continue // another system's, which is never written
			}
			again := newDependent()
			if err := mcowner.SetControllerReference(r, again, mcowner.ByName("west")); err != nil {
				t.Fatalf("%+v was read, and cannot be written: %v", r, err)
			}
			if c, ok := mcowner.ControllerOf(again, mcowner.ByName("west")); !ok || !c.Same(r) {
				t.Fatalf("%+v was written, and read as %+v", r, c)
			}
		}
	})
}

func inCluster(uid types.UID) func(*mcowner.Reference) {
	return func(r *mcowner.Reference) { r.ClusterUID = uid }
}

func TestWhatSucceedsAnOwner(t *testing.T) {
	cases := map[string]struct {
		now, before mcowner.Reference
		want        bool
	}{
		"ItIsTheSame":                     {cart(), cart(), true},
		"CreatedAnew":                     {cart(withUID("2")), cart(), true},
		"CreatedAnewInTheCluster":         {cart(withUID("2"), inCluster("a")), cart(inCluster("a")), true},
		"CreatedAnewInAnotherCluster":     {cart(withUID("2"), inCluster("b")), cart(inCluster("a")), false},
		"TheSameUIDInAnotherCluster":      {cart(inCluster("b")), cart(inCluster("a")), false},
		"NotKnownBefore":                  {cart(withUID("2"), inCluster("b")), cart(), true},
		"NotKnownNow":                     {cart(), cart(inCluster("a")), true},
		"CreatedAnewWhoKnowsWhere":        {cart(withUID("2")), cart(inCluster("a")), false},
		"AnotherName":                     {cart(named("basket")), cart(), false},
		"AnotherNameOfOneUID":             {cart(named("basket"), inCluster("a")), cart(inCluster("a")), false},
		"AnotherManager":                  {cart(of("payments", "b")), cart(of("payments", "a")), false},
		"OfAnotherSystemAndTheSame":       {cart(inCluster("a")), cart(of("", "")), true},
		"OfAnotherSystemAndCreatedBefore": {cart(withUID("2"), inCluster("a")), cart(of("", "")), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.now.Succeeds(tc.before); got != tc.want {
				t.Errorf("%+v succeeds %+v: %t, want %t", tc.now, tc.before, got, tc.want)
			}
		})
	}
}

// TestAnotherClusterTakesNothingOver, be it as the controller or not, and the error says what to do.
func TestAnotherClusterTakesNothingOver(t *testing.T) {
	for name, set := range map[string]func(mcowner.Reference, client.Object, mcowner.ClusterID) error{
		"Controller": mcowner.SetControllerReference, "Owner": mcowner.SetOwnerReference,
	} {
		t.Run(name, func(t *testing.T) {
			obj := newDependent()
			mustSet(t, set, cart(inCluster("of-the-first")), obj)
			before := obj.DeepCopy()
			err := set(cart(withUID("2"), inCluster("of-the-second")), obj, mcowner.ByName("west"))
			owned, ok := errors.AsType[*mcowner.AlreadyOwnedError](err)
			if !ok {
				t.Fatalf("it was set with the error %v, want an AlreadyOwnedError", err)
			}
			for _, want := range []string{"of-the-first", "of-the-second", "give one another", cart().Key()} {
				if !strings.Contains(owned.Error(), want) {
					t.Errorf("the error %q does not say %q", owned, want)
				}
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("it was refused, and has changed (-before, +after):\n%s", diff)
			}
		})
	}
}

// TestWhichClustersTheseAreIsCompletedAndKept: a program that knows it completes what one has written that does not, which then
// forgets nothing of it.
func TestWhichClustersTheseAreIsCompletedAndKept(t *testing.T) {
	known := cart(inCluster("of-east"), func(r *mcowner.Reference) { r.Dependent.ClusterUID = "of-west" })
	obj := newDependent()
	mustSet(t, mcowner.SetControllerReference, cart(), obj)
	for _, r := range []mcowner.Reference{known, cart()} {
		mustSet(t, mcowner.SetControllerReference, r, obj)
		got, _ := mcowner.ControllerOf(obj, mcowner.ByName("west"))
		if got.ClusterUID != "of-east" || got.Dependent.ClusterUID != "of-west" {
			t.Errorf("the reference says that the clusters are %q and %q", got.ClusterUID, got.Dependent.ClusterUID)
		}
	}
	mustSet(t, mcowner.SetControllerReference, cart(withUID("2"), inCluster("of-east")), obj)
	if got, _ := mcowner.ControllerOf(obj, mcowner.ByName("west")); got.UID != "2" || got.Dependent.ClusterUID != "" {
		t.Errorf("of another owner it was kept that the dependent's cluster is %q", got.Dependent.ClusterUID)
	}
}

// TestACopyInAnotherClusterOfTheNameIsFree for the owner that has its place there.
func TestACopyInAnotherClusterOfTheNameIsFree(t *testing.T) {
	obj := newDependent()
	mustSet(t, mcowner.SetControllerReference, cart(inCluster("a"), func(r *mcowner.Reference) { r.Dependent.ClusterUID = "before" }), obj)
	now := cart(withUID("2"), inCluster("b"), func(r *mcowner.Reference) { r.Dependent.ClusterUID = "now" })
	mustSet(t, mcowner.SetControllerReference, now, obj)
	if got, _ := mcowner.ControllerOf(obj, mcowner.ByName("west")); got.UID != "2" || got.Dependent.ClusterUID != "now" {
		t.Errorf("the controller is %+v", got)
	}
}

// TestNamesOfStrangersAreFitToBeShown: in messages, they are on one line, and of bounded length.
func TestNamesOfStrangersAreFitToBeShown(t *testing.T) {
	r := cart(named("a\x1b[31m\nb\u202e" + strings.Repeat("x", 1<<16)))
	for _, text := range []string{r.String(), (&mcowner.AlreadyOwnedError{Owner: &r, Now: &r}).Error()} {
		if strings.ContainsAny(text, "\x1b\n\u202e") || len(text) > 2000 {
			t.Errorf("shown as %.100q, of %d bytes", text, len(text))
		}
	}
}

// TestAReferenceLeadsToNothingButItsOwner: whoever asks for the owner joins its namespace and name into the path of a request.
func TestAReferenceLeadsToNothingButItsOwner(t *testing.T) {
	within := func(namespace string) func(*mcowner.Reference) {
		return func(r *mcowner.Reference) { r.Namespace = namespace }
	}
	for name, tc := range map[string]struct {
		change func(*mcowner.Reference)
		valid  bool
	}{
		"TheLongestName":      {change: named(strings.Repeat("n", 253)), valid: true},
		"TheLongestNamespace": {change: within(strings.Repeat("n", 63)), valid: true},
		"NameOfARole":         {change: named("system:node"), valid: true},
		"AnotherKind":         {change: named("../secrets/token")},
		"AnotherNamespace":    {change: named("../../kube-system/secrets/token")},
		"AService":            {change: named("../../monitoring/services/http:admin:80/proxy/-/delete")},
		"AnotherCluster":      {change: named("../../../../../../yours/api/v1/nodes")},
		"Above":               {change: named("..")},
		"Itself":              {change: named(".")},
		"ASubresource":        {change: named("cart/scale")},
		"Escaped":             {change: named("%2e%2e")},
		"TooLong":             {change: named(strings.Repeat("n", 254))},
		"NamespaceAbove":      {change: within("..")},
		"NamespaceWithMore":   {change: within("shop/secrets")},
		"NamespaceTooLong":    {change: within(strings.Repeat("n", 64))},
		"AVersionWithMore":    {change: func(r *mcowner.Reference) { r.APIVersion = "apps/v1/../../.." }},
	} {
		t.Run(name, func(t *testing.T) {
			r, obj := cart(tc.change), newDependent()
			err := mcowner.SetControllerReference(r, obj, mcowner.ByName("west"))
			if (err == nil) != tc.valid || !tc.valid && !errors.Is(err, mcowner.ErrInvalid) {
				t.Errorf("SetControllerReference returned %v", err)
			}
			for key, content := range map[string]string{
				r.Key(): mustJSON(t, obj, r),
				"multicluster.admiralty.io/controller-reference": mustJSON(t, obj, cart(tc.change, of("", ""))),
			} {
				forged := newDependent()
				forged.Annotations = map[string]string{key: content}
				read, err := mcowner.References(forged, mcowner.ByName("west"))
				if tc.valid != (len(read) == 1) || tc.valid == errors.Is(err, mcowner.ErrMalformed) {
					t.Errorf("References of %s returned %v, %v", key, read, err)
				}
			}
		})
	}
}
