package command_test

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// addGateway adds the context gateway, of a cluster behind a gateway that answers some requests with a page. It returns whether it has.
func (s *stage) addGateway(t *testing.T, cp *mctest.ControlPlane, misleads func(*http.Request) bool) (has func() bool) {
	t.Helper()
	var done atomic.Bool
	s.addFront(t, "gateway", cp, func(w http.ResponseWriter, req *http.Request) bool {
		if !misleads(req) {
			return false
		}
		done.Store(true)
		http.NotFound(w, req)
		return true
	})
	return done.Load
}

// isFor returns which requests are of a method, for what has such a path.
func isFor(method, end string) func(*http.Request) bool {
	return func(req *http.Request) bool { return req.Method == method && strings.HasSuffix(req.URL.Path, end) }
}

// onceDeleted returns those of requests that come after something was to be deleted.
func onceDeleted(is func(*http.Request) bool) func(*http.Request) bool {
	var deleted atomic.Bool
	return func(req *http.Request) bool {
		if req.Method == http.MethodDelete {
			deleted.Store(true)
		}
		return deleted.Load() && is(req)
	}
}

// TestANamespaceStaysWhereAGatewayHidesWhatOthersHaveInIt, as does one of which the kinds are hidden.
func TestANamespaceStaysWhereAGatewayHidesWhatOthersHaveInIt(t *testing.T) {
	t.Parallel()
	for name, misleads := range map[string]func(*http.Request) bool{
		"the objects": isFor(http.MethodGet, "/namespaces/fleet-system/configmaps"),
		"their kinds": onceDeleted(isFor(http.MethodGet, "/api")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "stays"}})
			misled := s.addGateway(t, s.Members[0], misleads)
			if r := s.run(t, "leave", "east", "--member-context", "gateway"); r.code != 1 || !misled() {
				t.Errorf("it is misled: %t, %+v", misled(), r)
			}
			namespace := &corev1.Namespace{}
			err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "fleet-system"}, namespace)
			if err != nil || namespace.DeletionTimestamp != nil {
				t.Errorf("the namespace is deleted: %v", namespace.DeletionTimestamp)
			}
			if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 || !strings.Contains(r.errOut, "kept, since ConfigMap stays is in it") {
				t.Errorf("without the gateway: %+v", r)
			}
		})
	}
}

// TestANamespaceGoesAlthoughAKindWentMeanwhile: the API server has no list of it, and says that it does not serve it.
func TestANamespaceGoesAlthoughAKindWentMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.create(t, leasesOfEstates())
	kinds := discovery.NewDiscoveryClientForConfigOrDie(s.Members[0].Config())
	serves := func() bool {
		lists, err := kinds.ServerPreferredNamespacedResources()
		return err == nil && slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "estate.example.com/v1" })
	}
	eventually(t, "the kind is served", serves)
	var asked atomic.Bool
	s.addFront(t, "slow", s.Members[0], func(_ http.ResponseWriter, req *http.Request) bool {
		if !isFor(http.MethodGet, "/apis/estate.example.com/v1/namespaces/fleet-system/leases")(req) || asked.Swap(true) {
			return false
		}
		if err := s.Members[0].Client().Delete(req.Context(), leasesOfEstates()); err != nil {
			t.Error(err)
		}
		for serves() && req.Context().Err() == nil {
			runtime.Gosched()
		}
		return false
	})
	r := s.run(t, "leave", "east", "--member-context", "slow")
	if r.code != 0 || !asked.Load() || !strings.Contains(r.errOut, "member: Namespace fleet-system: deleted\n") {
		t.Errorf("it was asked: %t, %+v", asked.Load(), r)
	}
}

// TestTheRightsStayWhereAGatewayHidesThatTheHubStillHasTheMember: its controllers may still work there.
func TestTheRightsStayWhereAGatewayHidesThatTheHubStillHasTheMember(t *testing.T) {
	t.Parallel()
	access := "/clusteraccesses/east"
	for name, tc := range map[string]struct {
		misleads func(*http.Request) bool
		says     string
	}{
		"at first":           {isFor(http.MethodGet, access), "read ClusterAccess default/east"},
		"when it is deleted": {isFor(http.MethodDelete, access), "delete ClusterAccess default/east"},
		"once it is deleted": {onceDeleted(isFor(http.MethodGet, access)), "is not known after 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			a := s.access(t)
			a.Finalizers = []string{"example.com/hold"}
			if err := s.Local.Client().Update(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			misled := s.addGateway(t, s.Local, tc.misleads)
			r := s.run(t, "leave", "east", "--context", "gateway", "--member-context", "member", "--dependents", "keep", "--timeout", "2s")
			if r.code != 1 || !misled() || !strings.Contains(r.errOut, tc.says) {
				t.Errorf("it is misled: %t, %+v", misled(), r)
			}
			account := &corev1.ServiceAccount{}
			if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Namespace: "fleet-system", Name: "fleet"}, account); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatAGatewayHidesIsNotSaidToBeDeleted.
func TestWhatAGatewayHidesIsNotSaidToBeDeleted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	misled := s.addGateway(t, s.Members[0], isFor(http.MethodDelete, "/clusterroles/checksums"))
	if r := s.run(t, "leave", "east", "--member-context", "gateway"); r.code != 1 || !misled() {
		t.Errorf("it is misled: %t, %+v", misled(), r)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 {
		t.Errorf("without the gateway: %+v", r)
	}
}

// TestARoleOfOthersThatAGatewayHidesIsNotWritten.
func TestARoleOfOthersThatAGatewayHidesIsNotWritten(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	theirs := &rbacv1.ClusterRole{ObjectMeta: named("checksums")}
	s.create(t, theirs)
	misled := s.addGateway(t, s.Members[0], isFor(http.MethodGet, "/clusterroles/checksums"))
	r := s.run(t, "join", "east", "--member-context", "gateway", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host)
	if r.code != 1 || !misled() {
		t.Errorf("it is misled: %t, %+v", misled(), r)
	}
	now := &rbacv1.ClusterRole{}
	if err := s.Members[0].Client().Get(t.Context(), client.ObjectKeyFromObject(theirs), now); err != nil || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was written: %v, %v", now.Rules, err)
	}
}
