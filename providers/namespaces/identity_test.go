package namespaces_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// reports are what a provider reports.
type reports chan fleet.Member

// Set implements fleet.Members.
func (r reports) Set(m fleet.Member) error {
	r <- m
	return nil
}

// Remove implements fleet.Members.
func (r reports) Remove(context.Context, fleet.ClusterName) error { return nil }

// identity waits until the member is reported with an identity other than before, and returns it.
func (r reports) identity(t *testing.T, name, before string) string {
	t.Helper()
	giveUp := time.After(patience)
	for {
		select {
		case m := <-r:
			if string(m.Name) == name && m.Identity != before {
				return m.Identity
			}
		case <-giveUp:
			t.Fatalf("%q was not reported with an identity other than %q", name, before)
		}
	}
}

func TestAMemberIsWhatTheUIDOfItsNamespaceSays(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	name := namespace(t, cp)
	local, err := cluster.New(cp.Config(), func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	startLocal(t, local)
	told := make(reports, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- namespaces.Provider{Selector: selected}.Run(ctx, local, told) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	ns := &corev1.Namespace{}
	uid := func() types.UID {
		t.Helper()
		if err := cp.Client().Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
			t.Fatal(err)
		}
		return ns.UID
	}
	first := told.identity(t, name, "")
	if first != string(uid()) {
		t.Errorf("the identity is %q, want the UID of the namespace, %q", first, ns.UID)
	}

	labels := ns.Labels
	if err := cp.Client().Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	finalize(t, cp, name)
	again := &corev1.Namespace{}
	again.Name, again.Labels = name, labels
	create(t, cp, again)
	if second := told.identity(t, name, first); second != string(uid()) {
		t.Errorf("the identity of the second namespace is %q, want its UID, %q", second, ns.UID)
	}
}
