package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// gateway is a manager whose cluster is behind a path of a server.
type gateway struct {
	ownerless

	client client.Client
	mu     sync.Mutex // guards asked
	asked  []string   // but for the identity
}

// GetClient implements cluster.Cluster.
func (g *gateway) GetClient() client.Client { return g.client }

// GetAPIReader implements cluster.Cluster.
func (g *gateway) GetAPIReader() client.Reader { return g.client }

// ServeHTTP implements http.Handler. Whatever is asked for is there, and is not what it was.
func (g *gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(req.URL.Path, "/namespaces/kube-system") {
		_, _ = fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"here"}}`)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, req.Method+" "+req.URL.Path)
	_, _ = fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","uid":"other"}}`)
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	var err error
	if g.client, err = client.New(&rest.Config{Host: server.URL + "/k8s/clusters/mine"}, client.Options{Scheme: scheme.Scheme, Mapper: mapper}); err != nil {
		t.Fatal(err)
	}
	return g
}

// sweeper returns a sweeper of the cluster that nobody holds up.
func (g *gateway) sweeper() *Sweeper {
	s := knownSweeper(g)
	s.OwnersIn, s.limit = mcowner.Clusters{Local: true}, newLimit(1000)
	s.writers = remote.Writers{Access: s.access}
	return s
}

// elsewhere are names by which a request would go to something else.
func elsewhere() []string {
	return []string{
		"../secrets/token",
		"../../../../../api/v1/namespaces/monitoring/services/http:admin:80/proxy/-/delete",
		"../../../../../../yours/api/v1/nodes",
	}
}

// ownedByAny returns an object with an owner that may have any name.
func ownedByAny(t *testing.T, name string, owner mcowner.Reference) client.Object {
	t.Helper()
	owner.Fleet, owner.APIVersion, owner.Kind, owner.ClusterUID = "payments", "v1", "ConfigMap", "here"
	owner.Dependent = mcowner.Location{Namespace: "default", Name: name}
	content, err := json.Marshal(owner)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: "of-" + types.UID(name), ResourceVersion: "77", Annotations: map[string]string{owner.Key(): string(content)},
	}}
}

// TestAForgedReferenceHasNothingElseAskedFor: neither when the reference is read, nor if it were taken for one that is well-formed.
func TestAForgedReferenceHasNothingElseAskedFor(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := g.sweeper()
	all := make([]client.Object, 0, 2*len(elsewhere()))
	for i, name := range elsewhere() {
		all = append(all,
			ownedByAny(t, fmt.Sprint("name-", i), mcowner.Reference{Namespace: "default", Name: name, UID: "1"}),
			ownedByAny(t, fmt.Sprint("namespace-", i), mcowner.Reference{Namespace: name, Name: "a", UID: "1"}))
		forged := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, UID: "1", ClusterUID: "here"}
		if _, err := s.proof.orphaned(t.Context(), forged, "member", nil, nil); !errors.Is(err, errUnproven) || !errors.Is(err, paths.ErrNoName) {
			t.Errorf("that %s is gone: %v", name, err)
		}
	}
	sweepOf(t, s, all)
	if len(g.asked) > 0 {
		t.Errorf("it was asked: %q", g.asked)
	}
	if n := s.memory(mcreconcile.LocalCluster).tallies[s.kinds[0].GroupVersionKind].unproven; n != len(all) {
		t.Errorf("%d dependents are unproven, want %d", n, len(all))
	}
}

// TestWhatAMemberListsHasNothingElseRemoved: its API server may answer with objects of any name.
func TestWhatAMemberListsHasNothingElseRemoved(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := g.sweeper()
	gone := mcowner.Reference{Namespace: "default", Name: "gone", UID: "1"}
	all := make([]client.Object, 0, 3*len(elsewhere()))
	for _, name := range elsewhere() {
		namespaced := ownedByAny(t, "dependent", gone)
		namespaced.SetNamespace(name)
		released := ownedByAny(t, name, gone)
		released.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "y"}})
		all = append(all, namespaced, ownedByAny(t, name, gone), released)
	}
	sweepOf(t, s, all)
	if len(g.asked) > 0 {
		t.Errorf("it was asked: %q", g.asked)
	}
	sweepOf(t, s, []client.Object{ownedByAny(t, "dependent", gone)})
	want := "DELETE /k8s/clusters/mine/api/v1/namespaces/default/configmaps/dependent"
	if len(g.asked) != 2 || g.asked[1] != want {
		t.Errorf("an orphan: it was asked %q, want %s at last", g.asked, want)
	}
}

// TestASweepRemembersLittleOfStrangers: whoever may write references may write long ones, and many.
func TestASweepRemembersLittleOfStrangers(t *testing.T) { //nolint:paralleltest // it measures the memory
	s := knownSweeper(&refusing{})
	s.limit = newLimit(1e9)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	found := findings{turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}}
	const objects, bytes = 500, 100_000
	for i := range objects {
		uid := types.UID(fmt.Sprint(i, strings.Repeat("u", bytes)))
		owner := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "stranger", UID: uid, ClusterUID: "here"}
		if _, err := s.prove(t.Context(), owner, "member", &found); !errors.Is(err, errUnproven) {
			t.Fatalf("that it is gone: %v", err)
		}
	}
	if grew := int64(heap() - before); grew > objects*bytes/4 {
		t.Errorf("of references of %d bytes in all, %d are remembered", objects*bytes, grew)
	}
	for i := range 2 * mostUnsure {
		found.noteUnsure(mcowner.Reference{UID: types.UID(fmt.Sprint(i))}, fmt.Errorf("%w: %s", errAnotherCluster, strings.Repeat("long", 10_000)))
	}
	first := mcowner.Reference{UID: "0"}
	if err := found.whyUnsure(first); !errors.Is(err, errAnotherCluster) || len(err.Error()) > 2*longestReason {
		t.Errorf("of the first one is remembered: %v", err)
	}
	first.ClusterUID = "another"
	if err := found.whyUnsure(first); err != nil {
		t.Errorf("of one in another cluster is remembered: %v", err)
	}
	if len(found.unsure) != mostUnsure {
		t.Errorf("%d are remembered, want %d", len(found.unsure), mostUnsure)
	}
}
