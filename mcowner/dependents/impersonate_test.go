package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestOwnersHaveTheRightsOfAUser: it may write in one namespace alone, also with new credentials.
func TestOwnersHaveTheRightsOfAUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	forbidden := one.CreateNamespace(t)
	w.grantCopies(one, "from-hub")
	// The controller itself may read, and impersonate, and nothing else.
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"from-hub"}},
	}
	first, second := one.AddUser(t, "controller-1", rules...), one.AddUser(t, "controller-2", rules...)

	r := w.spread()
	r.ByName = true // for want of that right
	r.User = func(owner mcreconcile.Request) string { return "from-hub" + string(owner.ClusterName) }
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: owner.Annotations["in"], Name: copyOf(owner.Name)}, Data: owner.Data,
		}}, nil
	}
	w.Members = nil // reported below
	told := listen(r)
	p := w.run(r)
	report := func(m fleet.Member) {
		if err := p.members.Set(m); err != nil {
			t.Fatal(err)
		}
	}
	report(fleet.Member{Name: "member-1", Config: p.power.feed(first)})
	p.is(one, fleet.Ready)
	for name, namespace := range map[string]string{"may": w.ns, "may-not": forbidden} {
		owner := w.owner(name, one.Name)
		owner.Annotations["in"] = namespace
		w.create(w.Local, owner)
	}
	w.isCopied(one, "may")
	w.told(w.Local, "may-not", dependents.EventForbidden, "from-hub")
	eventually(t, "the result says so", func() bool { return told.are("may-not", dependents.Forbidden) })
	list := &corev1.ConfigMapList{}
	if err := one.Client().List(t.Context(), list, client.InNamespace(forbidden)); err != nil || len(list.Items) > 0 {
		t.Errorf("in the forbidden namespace are %v, %v", list.Items, err)
	}

	report(fleet.Member{Name: "member-1", Config: p.power.feed(second)})
	eventually(t, "the new credentials are in use", func() bool {
		engagement, err := p.GetFleet().Engagement("member-1")
		return err == nil && string(engagement.Cluster().GetConfig().CertData) == string(second.CertData)
	})
	one.AddUser(t, "controller-1") // has no rights any more
	w.change(w.Local, "may", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the dependent follows", func() bool { return w.mustGet(one, copyOf("may")).Data["value"] == "2" })
	w.remove(w.Local, "may")
	w.isGone(w.Local, "may")
	w.isGone(one, copyOf("may"))
}

// grantCopies lets a user write dependents in the namespace of a member.
func (w *world) grantCopies(cp *mctest.ControlPlane, user string) {
	w.t.Helper()
	w.create(cp, &rbacv1.Role{
		ObjectMeta: metaOf(w.ns, user),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch", "delete"},
		}},
	})
	w.create(cp, &rbacv1.RoleBinding{
		ObjectMeta: metaOf(w.ns, user),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}
