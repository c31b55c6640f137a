package command_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// newStageOfThree has a third cluster, to which the context other leads.
func newStageOfThree(t *testing.T) *stage {
	t.Helper()
	s := newStageOf(t, 2)
	all, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	one, err := clientcmd.Load(s.Members[1].Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	at := one.Contexts[one.CurrentContext]
	all.Clusters["other"], all.AuthInfos["other"] = one.Clusters[at.Cluster], one.AuthInfos[at.AuthInfo]
	context := all.Contexts["member"].DeepCopy()
	context.Cluster, context.AuthInfo = "other", "other"
	all.Contexts["other"] = context
	if err := clientcmd.WriteToFile(*all, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

// access returns the ClusterAccess of east.
func (s *stage) access(t *testing.T) *accessv1alpha1.ClusterAccess {
	t.Helper()
	a := &accessv1alpha1.ClusterAccess{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// forgetIdentity makes the ClusterAccess of east one that was applied by other means than mcctl.
func (s *stage) forgetIdentity(t *testing.T) {
	t.Helper()
	a := s.access(t)
	a.Annotations = nil
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// refusesOther runs mcctl on the other cluster, which it refuses, and changes nothing.
func (s *stage) refusesOther(t *testing.T, args ...string) {
	t.Helper()
	before := s.madeByMcctl(t)
	r := s.run(t, append(args, "--member-context", "other")...)
	if r.code != 1 || !strings.Contains(r.errOut, "nothing was changed") || !strings.Contains(r.errOut, "mcctl leave east --force") {
		t.Errorf("%v: %+v", args, r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("%v: there were\n%v\nand then\n%v", args, before, after)
	}
	accounts := &corev1.ServiceAccountList{}
	if err := s.Members[1].Client().List(t.Context(), accounts, client.InNamespace("fleet-system")); err != nil || len(accounts.Items) > 0 {
		t.Errorf("%v: the other cluster has %d accounts, %v", args, len(accounts.Items), err)
	}
}

func TestACommandForAMemberDoesNothingInAnotherCluster(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	t.Run("join", func(t *testing.T) {
		s.refusesOther(t, "join", "east", "--rules", rules(t), "--advertise-server", s.Members[1].Config().Host)
	})
	t.Run("rbac", func(t *testing.T) { s.refusesOther(t, "rbac", "east", "--rules", rules(t)) })
	t.Run("leave", func(t *testing.T) { s.refusesOther(t, "leave", "east") })
	t.Run("leave by force", func(t *testing.T) { s.refusesOther(t, "leave", "east", "--force") })
	s.forgetIdentity(t)
	t.Run("leave of an access that does not say which cluster it is", func(t *testing.T) { s.refusesOther(t, "leave", "east") })
	t.Run("join of an access that does not say it, where the Member does", func(t *testing.T) {
		s.addMember(t, "east", membersv1alpha1.Status{Identity: string(systemNamespace(t, s.Members[0].Client()).UID)})
		s.refusesOther(t, "join", "east", "--rules", rules(t), "--advertise-server", s.Members[1].Config().Host)
	})
	t.Run("leave that goes on where the ClusterAccess is gone", func(t *testing.T) {
		if err := s.Local.Client().Delete(t.Context(), s.access(t)); err != nil {
			t.Fatal(err)
		}
		s.refusesOther(t, "leave", "east")
	})
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 {
		t.Errorf("leave of the member itself: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

func systemNamespace(t *testing.T, of client.Client) *corev1.Namespace {
	t.Helper()
	system := &corev1.Namespace{}
	if err := of.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		t.Fatal(err)
	}
	return system
}

func TestLeaveNamesWhatOthersHaveAppliedOfWhatJoinPrints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		keeps    []string
		inMember client.Object
	}{
		"minted": {
			nil,
			[]string{
				"hub: Secret default/east-minter", "member: ServiceAccount fleet-system/fleet", "member: ServiceAccount fleet-system/fleet-minter",
				"member: RoleBinding fleet-system/fleet-minter", "member: ClusterRoleBinding checksums",
			},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "fleet"}},
		},
		"federated": {
			[]string{"--federated", "operator"},
			[]string{"member: ClusterRoleBinding checksums"},
			&rbacv1.ClusterRoleBinding{ObjectMeta: named("checksums")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStageOfThree(t)
			printed := s.join(t, append([]string{"--dry-run=client"}, c.args...)...)
			if printed.code != 0 {
				t.Fatalf("%+v", printed)
			}
			s.applyPrinted(t, printed.out)
			if s.access(t).Spec.Minter != nil {
				s.createMinterSecret(t, "east")
			}
			for name, cluster := range map[string]string{"lister": "east", "of-west": "west"} {
				one := &accessv1alpha1.ServiceAccountImport{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: name}}
				one.Spec = accessv1alpha1.ServiceAccountImportSpec{ClusterName: cluster, Namespace: "default", Name: "lister"}
				if err := s.Local.Client().Create(t.Context(), one); err != nil {
					t.Fatal(err)
				}
			}
			s.refusesOther(t, "leave", "east")
			r := s.run(t, "leave", "east", "--member-context", "member")
			if !strings.Contains(r.errOut, "hub: ServiceAccountImport kube-public/lister: kept, since others") || strings.Contains(r.errOut, "of-west") {
				t.Errorf("it does not name the import of the member alone:\n%s", r.errOut)
			}
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			for _, kept := range c.keeps {
				if !strings.Contains(r.errOut, kept+": kept, since others have made it\n") {
					t.Errorf("%q is not in:\n%s", kept, r.errOut)
				}
			}
			if err := s.Members[0].Client().Get(t.Context(), client.ObjectKeyFromObject(c.inMember), c.inMember); err != nil {
				t.Errorf("what others have applied: %v", err)
			}
			key := client.ObjectKey{Namespace: "default", Name: "east"}
			if err := s.Local.Client().Get(t.Context(), key, &accessv1alpha1.ClusterAccess{}); !apierrors.IsNotFound(err) {
				t.Errorf("the ClusterAccess: %v", err)
			}
		})
	}
}

func TestAMemberInWhichNothingIsLeftLeavesWhereItIsKnownOrForced(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, c := range map[string]struct {
		identity string
		args     []string
		code     int
	}{
		"known":              {string(systemNamespace(t, s.Members[0].Client()).UID), nil, 0},
		"unknown":            {"", nil, 1},
		"unknown, by force":  {"", []string{"--force"}, 0},
		"another":            {"another", nil, 1},
		"another, by force":  {"another", []string{"--force"}, 1},
		"the hub, by itself": {string(systemNamespace(t, s.Local.Client()).UID), nil, 1},
	} {
		access := &accessv1alpha1.ClusterAccess{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"},
			Spec: accessv1alpha1.ClusterAccessSpec{
				Server: "https://east.example.com",
				Minter: &accessv1alpha1.Minter{SecretName: "east-minter", ServiceAccountNamespace: "fleet-system", ServiceAccountName: "fleet"},
			},
		}
		if c.identity != "" {
			access.Annotations = map[string]string{"access.fleet-runtime.dev/identity": c.identity}
		}
		if err := s.Local.Client().Create(t.Context(), access); err != nil {
			t.Fatal(err)
		}
		r := s.run(t, append([]string{"leave", "east", "--member-context", "member"}, c.args...)...)
		if r.code != c.code {
			t.Errorf("%s: %+v, want the code %d", name, r, c.code)
		}
		if err := s.Local.Client().Delete(t.Context(), access); (err == nil) != (c.code != 0) {
			t.Errorf("%s: deleting the ClusterAccess afterwards: %v", name, err)
		}
	}
}
