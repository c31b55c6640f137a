package namespaces_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

func TestAMemberIsWhatTheUIDOfItsNamespaceSays(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	name := namespace(t, cp)
	m := newManager(t, cp, namespaces.Provider{})
	m.start()
	ns := &corev1.Namespace{}
	isTheNamespace := func() {
		t.Helper()
		if err := cp.Client().Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
			t.Fatal(err)
		}
		m.await(fleet.ClusterName(name), "ready as the namespace "+string(ns.UID), func(s fleet.Status, known bool) bool {
			return known && s.State == fleet.Ready && s.Identity == string(ns.UID)
		})
	}
	isTheNamespace()

	labels := ns.Labels
	if err := cp.Client().Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	finalize(t, cp, name)
	again := &corev1.Namespace{}
	again.Name, again.Labels = name, labels
	create(t, cp, again)
	isTheNamespace()
}
