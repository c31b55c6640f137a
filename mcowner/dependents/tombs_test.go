package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// shelf has the ConfigMap of tombs once somebody has created it: for another owner, when ours is about to.
type shelf struct {
	client.Client

	there *corev1.ConfigMap
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

// Get implements client.Reader.
func (s *shelf) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.there == nil {
		return apierrors.NewNotFound(configMaps, key.Name)
	}
	s.there.DeepCopyInto(obj.(*corev1.ConfigMap)) //nolint:forcetypeassert // nothing else is read
	return nil
}

// Create implements client.Writer.
func (s *shelf) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	s.there = &corev1.ConfigMap{Data: map[string]string{"another": "1"}}
	return apierrors.NewAlreadyExists(configMaps, obj.GetName())
}

// Patch implements client.Writer.
func (s *shelf) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	content, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, s.there)
}

// tombs returns the tombs that are in the ConfigMap.
func (s *shelf) tombs() *tombs {
	return &tombs{
		access: &remote.Access{Timeout: time.Minute}, client: s, reader: s, name: "test",
		namespace: func() (string, error) { return "fleet", nil },
	}
}

// TestTwoOwnersAreNotedAtOnce, the first of all: one creates what the other writes to.
func TestTwoOwnersAreNotedAtOnce(t *testing.T) {
	t.Parallel()
	to := &shelf{}
	ts := to.tombs()
	if err := ts.put(t.Context(), ownerNamed("a")); err != nil {
		t.Fatal(err)
	}
	if is, err := ts.has(t.Context(), ownerNamed("a")); !is || err != nil || to.there.Data["another"] != "1" {
		t.Errorf("the owner is noted: %t, beside %v: %v", is, to.there.Data, err)
	}
}

// TestHowAnOwnerWentCountsUntilThatIsNoted, although no plan was made of that, and is forgotten then.
func TestHowAnOwnerWentCountsUntilThatIsNoted(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		finalizer string
		uid       types.UID
		says      metav1.DeletionPropagation
		refused   error
		stay      bool
	}{
		"its dependents are to stay":        {finalizer: metav1.FinalizerOrphanDependents, uid: "1", stay: true},
		"they are, and it cannot be noted":  {finalizer: metav1.FinalizerOrphanDependents, uid: "1", stay: true, refused: refused},
		"those of the one before are":       {finalizer: metav1.FinalizerOrphanDependents, uid: "0"},
		"they are to go":                    {finalizer: metav1.FinalizerDeleteDependents, uid: "1"},
		"it says something else about them": {finalizer: metav1.FinalizerOrphanDependents, uid: "1", says: metav1.DeletePropagationBackground},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: string(tc.says)}}}
			a := newAccounting(t, config{}, &plan{owner: said}, "a")
			c, owner := a.engine, a.o.plan.ref
			c.tombs = (&shelf{there: &corev1.ConfigMap{}}).tombs()
			going := deletedOwner(tc.finalizer)
			going.Name, going.UID = a.o.req.Name, tc.uid
			sees := c.deletions.predicate(mcreconcile.LocalCluster, &connected{})
			sees.Update(event.UpdateEvent{ObjectOld: going, ObjectNew: going})
			sees.Delete(event.DeleteEvent{Object: deletedOwner()}) // of another one
			sees.Delete(event.DeleteEvent{Object: going})
			if is, err := c.isToStay(t.Context(), owner); is != tc.stay || err != nil {
				t.Errorf("before it is noted they are to stay: %t, %v, want %t", is, err, tc.stay)
			}
			noted := c.tombs.namespace
			if tc.refused != nil {
				c.tombs.namespace = func() (string, error) { return "", tc.refused }
			}
			if err := c.gone(t.Context(), a.o.req); !errors.Is(err, tc.refused) {
				t.Fatal(err)
			}
			if known := len(c.deletions.seen) > 0; known != (tc.refused != nil) {
				t.Errorf("how it was deleted is known still: %t", known)
			}
			c.tombs.namespace = noted
			if is, err := c.isToStay(t.Context(), owner); is != tc.stay || err != nil {
				t.Errorf("once it is gone they are to stay: %t, %v, want %t", is, err, tc.stay)
			}
		})
	}
}
