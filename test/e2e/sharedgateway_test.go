package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestNoRequestOfAMemberReachesAnotherBehindTheGateway, which has the same credentials for all: whatever name a member's API server lists,
// and however the request is made.
func TestNoRequestOfAMemberReachesAnotherBehindTheGateway(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	g := newGateway(t, newAuthority(t), f.Members[0])
	const mine = "/k8s/clusters/mine"
	var mu sync.Mutex // guards heard
	var heard []string
	g.answer(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, mine+"/") {
			http.StripPrefix(mine, http.HandlerFunc(g.serve)).ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r.Method+" "+r.URL.Path)
	})
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {})
	cfg := g.config()
	cfg.Host += mine
	m.set(fleet.Member{Name: "m", Config: cfg})
	m.start()
	m.is("m", fleet.Ready)
	cl := m.cluster()
	guest, err := m.GetFleet().Guest(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	own, err := rest.HTTPClientFor(cl.GetConfig())
	if err != nil {
		t.Fatal(err)
	}
	listed := func() *metav1.PartialObjectMetadata {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		obj.Namespace, obj.Name = "default", "../../../../../../yours/api/v1/namespaces/prod"
		return obj
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{}`))
	for name, send := range map[string]func() error{
		"Get": func() error {
			return cl.GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(listed()), listed())
		},
		"Patch":  func() error { return cl.GetClient().Patch(t.Context(), listed(), patch) },
		"AGuest": func() error { return guest.Client().Patch(t.Context(), listed(), patch) },
		"Watch": func() error {
			all, err := metadata.NewForConfigAndClient(cl.GetConfig(), cl.GetHTTPClient())
			if err != nil {
				return err
			}
			_, err = all.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("../../../../../yours/api/v1").Watch(t.Context(), metav1.ListOptions{})
			return err
		},
		"AClientOfItsConfig": func() error {
			c, err := client.New(cl.GetConfig(), client.Options{})
			if err != nil {
				return err
			}
			return c.Patch(t.Context(), listed(), patch)
		},
		"AsItIs": func() error {
			resp, err := own.Get(g.server.URL + "/k8s/clusters/yours/api/v1/nodes") //nolint:noctx // the server is of the test
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		},
	} {
		if err := send(); !errors.Is(err, paths.ErrBeyond) || !strings.Contains(err.Error(), `cluster "m"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(heard) > 0 {
		t.Errorf("others behind the gateway were asked: %q", heard)
	}
	if status := m.status("m"); status.State != fleet.Ready {
		t.Errorf("what was not sent says nothing of the member, which is %s", status.State)
	}
	if err := client.IgnoreNotFound(cl.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.ConfigMap{})); err != nil {
		t.Errorf("what is sent to the member itself: %v", err)
	}
}
