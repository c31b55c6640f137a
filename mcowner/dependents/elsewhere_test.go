package dependents_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// asked is a way to a cluster on which it is counted what is asked for of Secrets.
type asked struct {
	http.RoundTripper

	secrets *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (a asked) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/secrets") {
		a.secrets.Add(1)
	}
	return a.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (a asked) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }

// forged creates a ConfigMap with a reference that says what somebody has written.
func (w *world) forged(cp *mctest.ControlPlane, name string, owner mcowner.Reference) *corev1.ConfigMap {
	w.t.Helper()
	owner.Dependent = mcowner.Location{Cluster: mcreconcile.ClusterName(cp.Name), Namespace: w.ns, Name: name}
	content, err := json.Marshal(owner)
	if err != nil {
		w.t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: name,
		Labels:      map[string]string{mcowner.FleetLabel: fleetName, owner.Key(): ""},
		Annotations: map[string]string{owner.Key(): string(content)},
	}}
	w.create(cp, cm)
	return cm
}

// TestAForgedReferenceTellsNothingOfTheHub: a user of a member could tell by what becomes of an object whether a Secret is there.
func TestAForgedReferenceTellsNothingOfTheHub(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "of-" + w.ns}}
	w.create(w.Local, secret)
	to := func(name string) mcowner.Reference {
		return w.goneOwner(func(r *mcowner.Reference) { r.Name = "../../kube-system/secrets/" + name })
	}
	exists, absent := w.forged(one, "exists", to(secret.Name)), w.forged(one, "absent", to("absent"))
	orphan := w.forged(one, "orphan", w.goneOwner())
	cfg, secrets := w.Local.Config(), &atomic.Int32{}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return asked{through, secrets} })
	w.collectAs(cfg)
	w.isGone(one, orphan.Name)
	w.swept(one, 3)
	w.unharmed(one, exists)
	w.unharmed(one, absent)
	if n := secrets.Load(); n > 0 {
		t.Errorf("%d Secrets of the local cluster were asked for", n)
	}
	if n := w.metric("fleet_runtime_unproven_dependents", one, "", ""); n != 2 {
		t.Errorf("%v dependents are unproven, want 2", n)
	}
}
