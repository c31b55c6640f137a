package command_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// rulesOfDependents are what a controller needs in a member in which its dependents are ConfigMaps.
const rulesOfDependents = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: dependents
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
`

// startWithDependents joins the member, and runs a manager that copies the ConfigMap default/owner into it.
func (s *stage) startWithDependents(t *testing.T) {
	t.Helper()
	mgr := s.newManager(t, noMetrics, logr.Discard())
	copier := &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet: "test", Name: "copier", OwnersIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}},
		StateNamespace: "default", OnMemberLeaving: dependents.LeaveDeleted,
		Targets: func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			if owner.Name != "owner" {
				return nil, nil
			}
			return []mcreconcile.ClusterName{"east"}, nil
		},
		Desired: func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			copied := &corev1.ConfigMap{Data: owner.Data}
			copied.Namespace, copied.Name = "default", "copy"
			return []client.Object{copied}, nil
		},
	}
	if err := copier.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	owner := &corev1.ConfigMap{Data: map[string]string{"key": "value"}}
	owner.Namespace, owner.Name = "default", "owner"
	if err := s.Local.Client().Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	r := s.run(t, "join", "east", "--member-context", "member", "--rules", write(t, rulesOfDependents),
		"--advertise-server", s.Members[0].Config().Host, "--wait", "1m")
	if r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	eventually(t, "the member has the dependent", func() bool { return s.dependent(t) != nil })
}

// dependent returns that of the member, nil if there is none.
func (s *stage) dependent(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "copy"}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// hasAccount reports whether the member has the account of the controllers and their rights.
func (s *stage) hasAccount(t *testing.T) bool {
	t.Helper()
	account, binding := &corev1.ServiceAccount{}, &rbacv1.ClusterRoleBinding{}
	err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Namespace: "fleet-system", Name: "fleet"}, account)
	if err == nil {
		err = s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "dependents"}, binding)
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// holdDependent lets somebody else keep the dependent, so that it is not gone at once when it is deleted, or lets go of it.
func (s *stage) holdDependent(t *testing.T, by ...string) {
	t.Helper()
	eventually(t, "the finalizers of the dependent are others", func() bool {
		cm := s.dependent(t)
		cm.Finalizers = by
		err := s.Members[0].Client().Update(t.Context(), cm)
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestLeavePrunesDependentsBeforeTheAccountGoes is AS-12.4, as the tests after it.
func TestLeavePrunesDependentsBeforeTheAccountGoes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startWithDependents(t)
	s.holdDependent(t, "example.com/hold")
	left := make(chan result, 1)
	go func() { left <- s.run(t, "leave", "east", "--member-context", "member", "--dependents", "prune") }()
	eventually(t, "the dependent is being deleted", func() bool { return s.dependent(t).DeletionTimestamp != nil })
	select {
	case r := <-left:
		t.Fatalf("it does not wait for the dependent: %+v", r)
	default:
	}
	if !s.hasAccount(t) {
		t.Error("the account is gone before the dependent is")
	}
	s.holdDependent(t)
	if r := <-left; r.code != 0 {
		t.Errorf("%+v", r)
	}
	if cm := s.dependent(t); cm != nil || s.hasAccount(t) {
		t.Errorf("the member has the dependent %v, and the account: %t", cm, s.hasAccount(t))
	}
}

func TestLeaveKeepsDependentsAsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startWithDependents(t)
	before := s.dependent(t)
	if r := s.run(t, "leave", "east", "--member-context", "member", "--dependents", "keep"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if s.hasAccount(t) {
		t.Error("the account stays")
	}
	if now := s.dependent(t); now == nil || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("there was\n%v\nand then\n%v", before, now)
	}
}

func TestLeavePrunesDependentsOfAMemberThatWasPausedOnceItIsResumed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startWithDependents(t)
	prune := []string{"leave", "east", "--member-context", "member", "--dependents", "prune"}
	if r := s.run(t, "pause", "east"); r.code != 0 {
		t.Fatalf("pause: %+v", r)
	}
	if r := s.run(t, prune...); r.code != 1 || !strings.Contains(r.errOut, "mcctl resume east") {
		t.Errorf("while it is paused: %+v", r)
	}
	if s.dependent(t) == nil || !s.hasAccount(t) || s.access(t).DeletionTimestamp != nil {
		t.Error("something was undone")
	}
	if r := s.run(t, "resume", "east"); r.code != 0 {
		t.Fatalf("resume: %+v", r)
	}
	if r := s.run(t, prune...); r.code != 0 {
		t.Errorf("when it is resumed: %+v", r)
	}
	if cm := s.dependent(t); cm != nil {
		t.Errorf("the member has the dependent %v", cm)
	}
}

// holds writes how a ClusterAccess and a Member hold the member back.
func (s *stage) holds(t *testing.T, accessPaused bool, spec membersv1alpha1.Spec) {
	t.Helper()
	a := s.access(t)
	a.Spec.Paused = accessPaused
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	m := &membersv1alpha1.Member{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, m); err != nil {
		t.Fatal(err)
	}
	m.Spec = spec
	if err := s.Local.Client().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestLeavePrunesNothingWhereControllersCannotTakeItBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "east", wellAt("https://east.example.com"))
	asTold := []string{"leave", "east", "--member-context", "member", "--timeout=1s"}
	prune := slices.Concat(asTold, []string{"--dependents=prune"})
	east := membersv1alpha1.Spec{ClusterName: "east"}
	paused, drained, leaving := east, east, east
	paused.Paused, drained.Drained, leaving.Leave, leaving.Drained = true, true, true, true
	refused := func(t *testing.T, does string, args ...string) {
		t.Helper()
		before := s.madeByMcctl(t)
		r := s.run(t, args...)
		if r.code != 1 || !strings.Contains(r.errOut, "nothing was changed") || !strings.Contains(r.errOut, does) || !strings.Contains(r.errOut, "--dependents=keep") {
			t.Errorf("%v: %+v", args, r)
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("%v: there were\n%v\nand then\n%v", args, before, after)
		}
	}
	for name, c := range map[string]struct {
		access bool
		spec   membersv1alpha1.Spec
		does   string
	}{
		"a ClusterAccess that is paused": {true, east, "set spec.paused of the ClusterAccess"},
		"a Member that is paused":        {false, paused, "mcctl resume east"},
		"a Member that is drained":       {false, drained, "mcctl undrain east"},
	} {
		t.Run(name, func(t *testing.T) {
			s.holds(t, c.access, c.spec)
			refused(t, c.does, prune...)
			refused(t, c.does, append(prune, "--force")...)
		})
	}
	t.Run("as the ClusterAccess says", func(t *testing.T) {
		a := s.access(t)
		a.Finalizers = []string{objects.LeaveFinalizer}
		if err := s.Local.Client().Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		s.holds(t, false, paused)
		refused(t, "mcctl resume east", asTold...)
	})
	t.Run("but one that people have let leave has no more to take back", func(t *testing.T) {
		s.holds(t, false, leaving)
		// Nobody takes the finalizer off.
		if r := s.run(t, append(prune, "--timeout=1ms")...); r.code != 1 || s.access(t).DeletionTimestamp == nil {
			t.Errorf("%+v", r)
		}
	})
	t.Run("and what is kept need not be taken back", func(t *testing.T) {
		s.holds(t, true, drained)
		if r := s.run(t, append(asTold, "--dependents=keep")...); r.code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestLeaveOfACallerThatMayNotDeleteAllOfItChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	reads := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}
	accesses := rbacv1.PolicyRule{APIGroups: []string{accessv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}}
	s.addUser(t, s.Members[0], "reader", reads)
	s.addUser(t, s.Local, "accesses", reads, accesses)
	before := s.madeByMcctl(t)
	for name, c := range map[string]struct{ args, says []string }{
		"in the member":           {[]string{"--member-user", "member-1-reader"}, []string{"in the member", "delete serviceaccounts fleet", "delete clusterroles"}},
		"the Secret of the hub":   {[]string{"--user", "local-accesses"}, []string{"in the hub", "delete secrets east-minter"}},
		"with what is to be said": {[]string{"--member-user", "member-1-reader", "--dependents=prune"}, []string{"in the member", "--force"}},
	} {
		r := s.run(t, append([]string{"leave", "east", "--member-context", "member"}, c.args...)...)
		for _, says := range c.says {
			if r.code != 1 || !strings.Contains(r.errOut, says) {
				t.Errorf("%s: %q is not in %+v", name, says, r)
			}
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("%s: there were\n%v\nand then\n%v", name, before, after)
		}
	}
	r := s.run(t, "leave", "east", "--member-context", "member", "--member-user", "member-1-reader", "--force")
	if r.code != 0 || !strings.Contains(r.out, "kubectl delete serviceaccount") {
		t.Errorf("by force: %+v", r)
	}
}
