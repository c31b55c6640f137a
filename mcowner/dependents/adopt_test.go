package dependents

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// hub is a manager without members, whose local cluster says which it is, unless there is an error.
type hub struct {
	mcmanager.Manager
	client.Reader

	uid types.UID
	err error
}

// GetProvider implements mcmanager.Manager.
func (*hub) GetProvider() fleet.Provider { return nil }

// GetFleet implements mcmanager.Manager.
func (*hub) GetFleet() *fleet.Fleet { return fleet.New(fleet.Options{}) }

// GetScheme implements cluster.Cluster.
func (*hub) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetAPIReader implements cluster.Cluster.
func (h *hub) GetAPIReader() client.Reader { return h }

// Get implements client.Reader.
func (h *hub) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetUID(h.uid)
	return h.err
}

// TestNothingIsAdoptedFromAnotherInstallationOfTheName: the name of its owner's cluster leads to another cluster here. What is not
// known of a member lets an object be taken, as from a cluster that is no more.
func TestNothingIsAdoptedFromAnotherInstallationOfTheName(t *testing.T) {
	t.Parallel()
	in := func(cluster mcreconcile.ClusterName, uid types.UID) mcowner.Reference {
		return ownerNamed("b", func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = cluster, uid })
	}
	for name, tc := range map[string]struct {
		from mcowner.Reference
		said error  // by the local cluster
		why  string // it is not taken
	}{
		"of its own cluster":                      {from: in("source", "s")},
		"of another that has the name":            {from: in("source", "t"), why: "give one another"},
		"of its own cluster, without an identity": {from: in("source", "")},
		"of the local cluster":                    {from: in("", "h")},
		"of another local cluster":                {from: in("", "g"), why: `of the identity "g", and here it is the identity "h"`},
		"of a local cluster without an identity":  {from: in("", "")},
		"of one that does not answer":             {from: in("", "h"), said: errors.New("no answer"), why: "no answer"},
		"of a member that is away":                {from: in("other", "o")},
		"of another one of that name":             {from: in("other", "p"), why: `here it is the identity "o"`},
		"of a member that nobody knows":           {from: in("unknown", "u")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := placing()
			p.engine.access.Identities.Manager.(*hub).err = tc.said //nolint:forcetypeassert // placing has made it
			p.engine.ledger.present(record.Site{Name: "other", Identity: "o"})
			err := p.mayChange(t.Context(), wanted{Policy: Policy{Conflict: Adopt}}, owned(t, tc.from))
			_, conflict := errors.AsType[*ConflictError](err)
			if taken := err == nil; taken != (tc.why == "") || conflict == taken || !taken && !strings.Contains(err.Error(), tc.why) {
				t.Errorf("it may not be taken, since %v; want %q", err, tc.why)
			}
		})
	}
}
