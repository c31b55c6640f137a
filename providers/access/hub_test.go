package access_test

import (
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

var (
	pool   mctest.Pool
	output accesstest.Output
)

func TestMain(m *testing.M) { os.Exit(output.Run(m, &pool)) }

// hub is a local cluster with the CRDs, and a namespace in it.
type hub struct {
	*mctest.ControlPlane
	namespace string
}

// shareHub returns a hub that others use too.
func shareHub(t *testing.T) hub {
	t.Helper()
	return newHub(t, pool.Share(t, accesstest.Options(t, 0)))
}

// startHub returns a hub that can be stopped, and members.
func startHub(t *testing.T, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	f := pool.Start(t, accesstest.Options(t, members))
	return newHub(t, f.Local), f.Members
}

func newHub(t *testing.T, cp *mctest.ControlPlane) hub {
	t.Helper()
	h := hub{cp, cp.CreateNamespace(t)}
	output.Collect(t, cp, h.namespace)
	return h
}

// follow runs the provider until the test ends.
func follow(t *testing.T, h hub) hubtest.Followed {
	t.Helper()
	f := hubtest.Follow(t, h.Config(), &access.Provider{Namespace: h.namespace})
	t.Cleanup(func() { output.Note(f.List(nil)); output.Note(f.Problems()) })
	return f
}

func (h hub) update(t *testing.T, name string, change func(a *v1alpha1.ClusterAccess)) {
	t.Helper()
	a := h.get(t, name)
	before := a.DeepCopy()
	change(a)
	hubtest.Must(t, h.Client().Patch(t.Context(), a, client.MergeFrom(before)))
}

func (h hub) get(t *testing.T, name string) *v1alpha1.ClusterAccess {
	t.Helper()
	a := &v1alpha1.ClusterAccess{}
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, a))
	return a
}
