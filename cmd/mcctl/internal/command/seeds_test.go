package command_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/access"
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// madeByMcctl returns the versions of all that mcctl has made, and of the ClusterAccesses.
func (s *stage) madeByMcctl(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	note := func(cp *mctest.ControlPlane, list client.ObjectList, opts ...client.ListOption) {
		t.Helper()
		if err := cp.Client().List(t.Context(), list, opts...); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			obj := o.(client.Object) //nolint:forcetypeassert // of an API server
			versions[cp.Name+" "+obj.GetNamespace()+"/"+obj.GetName()+" "+string(obj.GetUID())] = obj.GetResourceVersion()
		}
	}
	for _, cp := range []*mctest.ControlPlane{s.Local, s.Members[0]} {
		for _, list := range []client.ObjectList{
			&corev1.ServiceAccountList{}, &corev1.SecretList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		} {
			note(cp, list, client.MatchingLabels{"app.kubernetes.io/managed-by": "mcctl"})
		}
	}
	note(s.Local, &accessv1alpha1.ClusterAccessList{})
	return versions
}

// renameContexts writes a kubeconfig whose contexts are ctx1, the hub, and ctx2, the member, of clusters with characters that names
// of objects may not have.
func (s *stage) renameContexts(t *testing.T) {
	t.Helper()
	from, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	to := clientcmdapi.NewConfig()
	for context, old := range map[string]string{"ctx1": "hub", "ctx2": "member"} {
		cluster := "kind_c." + context[3:]
		to.Clusters[cluster], to.AuthInfos[cluster] = from.Clusters[old], from.AuthInfos[old]
		to.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	}
	s.kubeconfig = filepath.Join(t.TempDir(), "kinds")
	if err := clientcmd.WriteToFile(*to, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// TestAClusterIsBootstrappedTwiceAndLeavesNothing is AS-7.1 and AS-7.6, in which join and leave have the place of bootstrap and its
// opposite. What export printed there is what join prints with --dry-run=client, which has no token.
//
// In one thing AS-7.6 is not followed: there, imports go too. Here leave names them, and they stay. They are made by those who use them, in
// namespaces of their own, and pods may name them: what mcctl has not made it does not remove. Nothing is left that could be used: the Secret
// of an import goes with the ClusterAccess.
func TestAClusterIsBootstrappedTwiceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.renameContexts(t)
	join := []string{
		"join", "cluster-2", "--context", "ctx1", "--member-context", "ctx2", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host,
	}
	t.Run("AS-7.1 join once", func(t *testing.T) {
		if r := s.run(t, join...); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	})
	before := s.madeByMcctl(t)
	t.Run("AS-7.1 join again changes no object", func(t *testing.T) {
		if r := s.run(t, join...); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if after := s.madeByMcctl(t); len(before) < 5 || !maps.Equal(before, after) {
			t.Errorf("there were\n%v\nand then\n%v", before, after)
		}
	})
	t.Run("AS-7.1 the minter lists no Secrets, and makes tokens of the accounts that it may", func(t *testing.T) {
		secret := &corev1.Secret{}
		if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "cluster-2-minter"}, secret); err != nil {
			t.Fatal(err)
		}
		s.checkMinter(t, string(secret.Data[accessv1alpha1.MinterToken]))
	})
	imported := s.importLister(t, "cluster-2")
	t.Run("AS-7.6 leave removes it on both sides, and names the import that stays", func(t *testing.T) {
		r := s.run(t, "leave", "cluster-2", "--context", "ctx1", "--member-context", "ctx2")
		if r.code != 0 || !strings.Contains(r.errOut, "hub: ServiceAccountImport default/pod-lister: kept, since others have made it") {
			t.Fatalf("%+v", r)
		}
		if left := s.madeByMcctl(t); len(left) > 0 {
			t.Errorf("it leaves %v", left)
		}
		eventually(t, "the Secret of the import is gone", func() bool { return !s.hubHas(t, imported, &corev1.Secret{}) })
		if !s.hubHas(t, imported, &accessv1alpha1.ServiceAccountImport{}) {
			t.Error("the import is gone")
		}
	})
}

// importLister runs the controller of imports, imports an account of the member into the hub's namespace default, and waits until the
// Secret is there, which has the name of the import.
func (s *stage) importLister(t *testing.T, cluster string) client.ObjectKey {
	t.Helper()
	key := client.ObjectKey{Namespace: "default", Name: "pod-lister"}
	as := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	s.create(t, &corev1.ServiceAccount{ObjectMeta: as}, &rbacv1.Role{ObjectMeta: as, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{key.Name}, Verbs: []string{"create"},
	}}}, &rbacv1.RoleBinding{
		ObjectMeta: as, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: key.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "fleet-system", Name: "fleet-minter"}},
	})
	a := &accessv1alpha1.ClusterAccess{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: cluster}, a); err != nil {
		t.Fatal(err)
	}
	a.Spec.AllowedImports = []accessv1alpha1.AllowedImports{{Namespaces: []string{key.Namespace}, ServiceAccounts: []string{key.String()}}}
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	mgr := s.newManager(t, noMetrics, logr.Discard())
	if err := (access.Imports{Namespace: key.Namespace}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	spec := accessv1alpha1.ServiceAccountImportSpec{ClusterName: cluster, Namespace: key.Namespace, Name: key.Name}
	if err := s.Local.Client().Create(t.Context(), &accessv1alpha1.ServiceAccountImport{ObjectMeta: as, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the import has its Secret", func() bool { return s.hubHas(t, key, &corev1.Secret{}) })
	return key
}

// hubHas reports whether the hub has an object of a name.
func (s *stage) hubHas(t *testing.T, key client.ObjectKey, obj client.Object) bool {
	t.Helper()
	err := s.Local.Client().Get(t.Context(), key, obj)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// TestWhatJoinPrintsMakesAMemberWhereItIsApplied is the rest of AS-7.6: join prints, as another user too, and others apply.
func TestWhatJoinPrintsMakesAMemberWhereItIsApplied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startManager(t, noMetrics)
	r := s.join(t, "--member-as", "x", "--dry-run=client", "-o", "yaml")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.untouched(t)
	s.applyPrinted(t, r.out)
	s.createMinterSecret(t, "east")
	eventually(t, "describe says that it is Ready", func() bool { return s.run(t, "describe", "east").code == 0 })
	if r := s.run(t, "check", "east", "--rules", rules(t)); r.code != 0 {
		t.Errorf("check: %+v", r)
	}
}

// applyPrinted applies each object to the cluster that its annotation names.
func (s *stage) applyPrinted(t *testing.T, printed string) {
	t.Helper()
	sides := map[string]*mctest.ControlPlane{"hub": s.Local, "member": s.Members[0]}
	for document := range strings.SplitSeq(printed, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatal(err)
		}
		side := obj.GetAnnotations()["access.fleet-runtime.dev/side"]
		if sides[side] == nil {
			t.Fatalf("%s %s is of the side %q", obj.GetKind(), obj.GetName(), side)
		}
		if err := sides[side].Client().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("gitops")); err != nil {
			t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// createMinterSecret makes what join does not print, as docs/access.md has the keys.
func (s *stage) createMinterSecret(t *testing.T, name string) {
	t.Helper()
	access := &accessv1alpha1.ClusterAccess{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, access); err != nil {
		t.Fatal(err)
	}
	minter, request := &corev1.ServiceAccount{}, tokenRequest(24*3600)
	minter.Namespace, minter.Name = "fleet-system", "fleet-minter"
	if err := s.Members[0].Client().SubResource("token").Create(t.Context(), minter, request); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{StringData: map[string]string{
		"token": request.Status.Token, "server": access.Spec.Server, "ca.crt": string(access.Spec.CABundle),
		"namespace": minter.Namespace, "serviceAccount": minter.Name,
	}}
	secret.Namespace, secret.Name = "default", access.Spec.Minter.SecretName
	if err := s.Local.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// TestAnyKubeconfigWillDoAndNoneIsWritten is what became of AS-12.1: there is nothing to activate, as mcctl keeps no state.
func TestAnyKubeconfigWillDoAndNoneIsWritten(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	before, err := os.ReadFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "not called config")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "any.name")
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"AS-12.1 a file of another name", "AS-12.1 again"} {
		t.Run(step, func(t *testing.T) {
			if r := run(t.Context(), "list", "--kubeconfig", path, "--context", "hub"); r.code != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("AS-12.1 a wrong context", func(t *testing.T) {
		if r := run(t.Context(), "list", "--kubeconfig", path, "--context", "nowhere"); r.code != 1 || !strings.Contains(r.errOut, "nowhere") {
			t.Errorf("%+v", r)
		}
	})
	after, err := os.ReadFile(path)
	files, _ := os.ReadDir(folder)
	if err != nil || string(after) != string(before) || len(files) != 1 {
		t.Errorf("the kubeconfig was changed, or there are %d files: %v", len(files), err)
	}
}

// TestAnUnknownContextChangesNothing is AS-12.3, and AS-12.4 for names that are no member's.
func TestAnUnknownContextChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for step, args := range map[string][]string{
		"AS-12.3 join of an unknown context":                              {"join", "east", "--member-context", "nowhere", "--rules", rules(t), "--advertise-server", "https://member.example.com"},
		"AS-12.4 leave of an unknown member":                              {"leave", "nowhere", "--member-context", "member"},
		"AS-12.4 leave of a name of 253 characters, which is no member's": {"leave", strings.Repeat("a", 253), "--member-context", "member"},
	} {
		t.Run(step, func(t *testing.T) {
			if r := s.run(t, args...); r.code != 1 {
				t.Errorf("%+v", r)
			}
			s.untouched(t)
		})
	}
}
