package dependents

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
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
