package dependents

import (
	"errors"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestReferencesThatCannotBeReadTellNoTenantOfAnother: here two owners claim to be the controller. Without tenants they are named.
func TestReferencesThatCannotBeReadTellNoTenantOfAnother(t *testing.T) {
	t.Parallel()
	cm := owned(t, ownerNamed("secret-one"))
	maps.Copy(cm.Annotations, owned(t, ownerNamed("secret-two")).Annotations)
	for _, tenants := range []bool{false, true} {
		p := placing()
		if tenants {
			p.engine.writers.User = func(owner mcreconcile.Request) string { return "user-of-" + owner.Name }
		}
		err := p.mayChange(t.Context(), wanted{}, cm)
		if _, is := errors.AsType[*ConflictError](err); !is || !errors.Is(err, mcowner.ErrMalformed) || strings.Contains(err.Error(), "secret-") == tenants {
			t.Errorf("with tenants: %t; it is told: %v", tenants, err)
		}
	}
}

// TestASliceOfAStrangerNamesNoOwnerElsewhere: of an owner that is said to be gone, the API server is asked.
func TestASliceOfAStrangerNamesNoOwnerElsewhere(t *testing.T) {
	t.Parallel()
	s := sliceWatch{&engine{cfg: config{fleet: "payments", name: "copier"}}}
	for key, want := range map[[2]string]bool{
		{"shop", "cart"}: true, {"", "cart"}: true, {"shop", ""}: false,
		{"shop", "../../kube-system/secrets/token"}: false, {"..", "cart"}: false, {"shop/secrets", "cart"}: false,
	} {
		slice := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.FleetLabel: "payments", v1alpha1.ControllerLabel: "copier"},
			Annotations: map[string]string{v1alpha1.OwnerNamespaceAnnotation: key[0], v1alpha1.OwnerNameAnnotation: key[1]},
		}}
		if req, ours := s.ownerOf("east", slice); ours != want {
			t.Errorf("a slice of %s is ours: %t, want %t", req, ours, want)
		}
	}
}
