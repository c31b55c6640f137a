package mctest_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestPooledControlPlaneLooksNewToTheNextTest(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, cp *mctest.ControlPlane) (left []client.Object){
		"nothing":                                leaveNothing,
		"objects with finalizers":                leaveObjectsWithFinalizers,
		"hundreds of objects":                    leaveHundredsOfObjects,
		"a namespace that nobody has ended":      leaveTerminatingNamespace,
		"a running pod and a service":            leaveRunningPodAndService,
		"custom resources with finalizers":       leaveCustomResourcesWithFinalizers,
		"a CRD that the test itself has created": leaveCRD,
		"rights of a user":                       leaveRights,
		"a webhook that lets nothing be deleted": leaveWebhookThatForbidsDeleting,
		"a frozen API server":                    leaveFrozenAPIServer,
		"a frozen etcd":                          leaveFrozenEtcd,
		"a restarted API server":                 leaveRestartedAPIServer,
	} {
		t.Run(name, func(t *testing.T) {
			var left []client.Object
			var host string
			t.Run("first", func(t *testing.T) {
				cp := pool.Start(t, mctest.Options{CRDPaths: []string{"testdata"}}).Local
				host = cp.Config().Host
				left = use(t, cp)
			})
			t.Run("next", func(t *testing.T) {
				cp := pool.Start(t, mctest.Options{Scheme: schemeWithCRDs(t)}).Local
				if cp.Config().Host != host {
					t.Error("the control plane was thrown away")
				}
				// As informers read: what the API server has cached is good enough.
				cached := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
				for _, o := range append(left, crd("widgets", "Widget")) {
					err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(o), o, cached)
					if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
						t.Errorf("%T %s is still there, or: %v", o, client.ObjectKeyFromObject(o), err)
					}
				}
			})
		})
	}
}

func TestPooledControlPlaneThatCannotLookNewIsThrownAway(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, cp *mctest.ControlPlane){
		"the API server is stopped":         leaveStoppedAPIServer,
		"etcd is stopped":                   leaveStoppedEtcd,
		"the default namespace has a label": leaveLabelOnDefaultNamespace,
		"a role of the system is gone":      leaveWithoutSystemRole,
	} {
		t.Run(name, func(t *testing.T) {
			var host string
			t.Run("first", func(t *testing.T) {
				cp := pool.Start(t, mctest.Options{}).Local
				host = cp.Config().Host
				use(t, cp)
			})
			t.Run("next", func(t *testing.T) {
				cp := pool.Start(t, mctest.Options{}).Local
				if cp.Config().Host == host {
					t.Error("the same control plane was given to the next test")
				}
				if err := cp.Client().List(t.Context(), &corev1.NamespaceList{}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSharedControlPlaneIsTheSameForAllTests(t *testing.T) {
	shared := pool.Share(t, mctest.Options{})
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if cp := pool.Share(t, mctest.Options{}); cp.Config().Host != shared.Config().Host {
				t.Errorf("the test has %s, want %s", cp.Config().Host, shared.Config().Host)
			}
			if cp := pool.Start(t, mctest.Options{}).Local; cp.Config().Host == shared.Config().Host {
				t.Error("a test has the shared one as its own")
			}
			pool.Share(t, mctest.Options{}).CreateNamespace(t)
		})
	}
}

func TestPooledControlPlaneBelongsToOneTestAtATime(t *testing.T) {
	var mu sync.Mutex
	users := map[string]string{} // by host
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			fleet := pool.Start(t, mctest.Options{Clusters: 1})
			for _, cp := range append(fleet.Members, fleet.Local) {
				host := cp.Config().Host
				mu.Lock()
				if other := users[host]; other != "" {
					t.Errorf("%s has %s, which belongs to %s", t.Name(), host, other)
				}
				users[host] = t.Name()
				mu.Unlock()
				t.Cleanup(func() {
					mu.Lock()
					defer mu.Unlock()
					delete(users, host)
				})
				cp.CreateNamespace(t)
			}
		})
	}
}
