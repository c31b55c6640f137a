package dependents

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
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
