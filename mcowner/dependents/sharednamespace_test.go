package dependents

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatAnOwnerSharesMayBecomeItsOwn: it is no copy from another cluster, and nobody else controls it.
func TestWhatAnOwnerSharesMayBecomeItsOwn(t *testing.T) {
	t.Parallel()
	before := func(r *mcowner.Reference) { notController(r); r.UID = "0" }
	for name, tc := range map[string]struct {
		owners []mcowner.Reference
		change func(*corev1.ConfigMap)
		want   error // nil if it may be changed
	}{
		"its own":                      {owners: []mcowner.Reference{ownerNamed("a", notController)}},
		"shared with another":          {owners: []mcowner.Reference{ownerNamed("b", notController), ownerNamed("a", notController)}},
		"another's":                    {owners: []mcowner.Reference{ownerNamed("b", notController)}, want: errNoReference},
		"of the owner before":          {owners: []mcowner.Reference{ownerNamed("a", before)}, want: errNoReference},
		"its own, and being deleted":   {owners: []mcowner.Reference{ownerNamed("a", notController)}, change: going, want: errGoing},
		"its own, and controlled here": {owners: []mcowner.Reference{ownerNamed("a", notController)}, change: controlled, want: errElse},
	} {
		cm := owned(t, tc.owners...)
		if tc.change != nil {
			tc.change(cm)
		}
		err := placing().mayChange(t.Context(), wanted{}, cm)
		_, native := errors.AsType[*mcowner.AlreadyOwnedError](err)
		if is := errors.Is(err, tc.want) || native && errors.Is(tc.want, errElse); !is {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

var errElse = errors.New("it is somebody else's")

func going(cm *corev1.ConfigMap) { cm.DeletionTimestamp = new(metav1.Now()) }

func controlled(cm *corev1.ConfigMap) {
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "2", Controller: new(true)}}
}

// TestWhoMayHaveANamespaceThatWasCreatedForOthers: who may adopt, and is of the same installation and user as all that share it.
func TestWhoMayHaveANamespaceThatWasCreatedForOthers(t *testing.T) {
	t.Parallel()
	b, shared := ownerNamed("b", notController), namespaceKind
	inAnother := ownerNamed("c", notController, func(r *mcowner.Reference) { r.ClusterUID = "other" })
	inB := ownerNamed("c", notController, func(r *mcowner.Reference) { r.Namespace = "team-b" })
	elses := ownerNamed("c", notController, func(r *mcowner.Reference) { r.Fleet = "shop" })
	for name, tc := range map[string]struct {
		owners []mcowner.Reference
		by     string
		kind   schema.GroupKind
		policy ConflictPolicy
		user   bool
		change func(*corev1.ConfigMap)
		want   error // nil if it may be changed
	}{
		"it adopts what is nobody's":   {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: AdoptUnowned},
		"it adopts":                    {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: Adopt},
		"it adopts, of the same user":  {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: Adopt, user: true},
		"nobody has it":                {by: "payments", kind: shared, policy: Adopt, change: labelled},
		"it does not adopt":            {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: Fail, want: errNoReference},
		"it is going":                  {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: Adopt, change: going, want: errNoReference},
		"it is controlled natively":    {owners: []mcowner.Reference{b}, by: "payments", kind: shared, policy: Adopt, change: controlled, want: errElse},
		"nobody says it was created":   {owners: []mcowner.Reference{b}, kind: shared, policy: Adopt, want: errNoReference},
		"it was created by others":     {owners: []mcowner.Reference{b}, by: "shop", kind: shared, policy: Adopt, want: errNoReference},
		"it is no namespace":           {owners: []mcowner.Reference{b}, by: "payments", kind: schema.GroupKind{Kind: "ConfigMap"}, policy: Adopt, want: errNoReference},
		"others of the name share it":  {owners: []mcowner.Reference{b, inAnother}, by: "payments", kind: shared, policy: Adopt, want: errElse},
		"another user shares it":       {owners: []mcowner.Reference{b, inB}, by: "payments", kind: shared, policy: Adopt, user: true, want: errOtherTenant},
		"it is another installation's": {owners: []mcowner.Reference{elses}, by: "payments", kind: shared, policy: Adopt, want: errNoReference},
		"another user, and no label":   {owners: []mcowner.Reference{inB}, kind: shared, policy: Adopt, user: true, change: unlabelled, want: errOtherTenant},
	} {
		obj, p := owned(t, tc.owners...), placing()
		if tc.user {
			p.engine.writers.User = func(owner mcreconcile.Request) string { return "user-of-" + owner.Namespace }
		}
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, mcowner.CreatedByAnnotation, tc.by)
		if tc.change != nil {
			tc.change(obj)
		}
		err := p.mayChange(t.Context(), wanted{kind: remote.Untyped(tc.kind.WithVersion("v1")), Policy: Policy{Conflict: tc.policy}}, obj)
		_, elses := errors.AsType[*mcowner.AlreadyOwnedError](err)
		if is := errors.Is(err, tc.want) || elses && errors.Is(tc.want, errElse); !is {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestANamespaceThatOthersShareHasNoNativeController: Kubernetes' garbage collector does not look whether it is empty.
func TestANamespaceThatOthersShareHasNoNativeController(t *testing.T) {
	t.Parallel()
	for by, want := range map[string]int{"payments": 0, "": 1} {
		p, config := placing(), &unstructured.Unstructured{}
		p.asked.owner, p.at.ID.Name = &corev1.ConfigMap{}, p.asked.ref.Cluster
		p.asked.ref.Namespace = "" // it is of a kind that has none
		config.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(namespaceKind.Kind))
		config.SetName("a")
		if err := p.control(config); err != nil {
			t.Fatal(err)
		}
		existing := config.DeepCopy()
		annotations := existing.GetAnnotations()
		annotations[mcowner.CreatedByAnnotation] = by
		existing.SetAnnotations(annotations)
		config, err := p.keepAdopted(p.engine.namespaces(), config, existing)
		if err != nil || len(config.GetOwnerReferences()) != want {
			t.Errorf("created by %q, it has the native owners %v, %v", by, config.GetOwnerReferences(), err)
		}
	}
}

func labelled(cm *corev1.ConfigMap) { cm.Labels = map[string]string{mcowner.FleetLabel: "payments"} }

func unlabelled(cm *corev1.ConfigMap) { delete(cm.Labels, mcowner.FleetLabel) }

// takes is a writer that takes all.
type takes struct{ client.Writer }

func (takes) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// TestANamespaceIsCreatedAnewWithoutAPermit in the cluster in which others have deleted it, and not in another one that has taken the name.
func TestANamespaceIsCreatedAnewWithoutAPermit(t *testing.T) {
	t.Parallel()
	p := placing()
	p.o, p.asked.owner, p.writer = newOwnerState(mcreconcile.Request{}, "1"), &corev1.ConfigMap{}, takes{}
	p.asked.targets = []mcreconcile.ClusterName{"another", "target"}
	w := wanted{kind: p.engine.namespaces(), obj: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, shared: true}
	if _, _, err := p.createNamespace(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	p.o.progress = rollout.New(rollout.Policy{MaxParallel: intstr.FromInt32(1)}, "1") // which has given none
	if _, _, err := p.createNamespace(t.Context(), w); err != nil {
		t.Errorf("it is not created anew: %v", err)
	}
	p.at.ID.UID = "another"
	if _, _, err := p.createNamespace(t.Context(), w); !errors.Is(err, ErrWaiting) {
		t.Errorf("in the other cluster it does not wait: %v", err)
	}
}
