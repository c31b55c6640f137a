package dependents

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
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

// TestTwoOwnersAreNotedAtOnce, the first of all: one creates what the other writes to.
func TestTwoOwnersAreNotedAtOnce(t *testing.T) {
	t.Parallel()
	to := &shelf{}
	ts := &tombs{
		access: &remote.Access{Timeout: time.Minute}, client: to, reader: to, name: "test",
		namespace: func() (string, error) { return "fleet", nil },
	}
	if err := ts.put(t.Context(), ownerNamed("a")); err != nil {
		t.Fatal(err)
	}
	if is, err := ts.has(t.Context(), ownerNamed("a")); !is || err != nil || to.there.Data["another"] != "1" {
		t.Errorf("the owner is noted: %t, beside %v: %v", is, to.there.Data, err)
	}
}
