package command_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func TestAnAccessOfOthersIsNotLedToAnotherCluster(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	server := strings.TrimRight(s.Members[0].Config().Host, "/")
	s.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "b"}}) // of the name that any member may have
	for name, c := range map[string]struct {
		server string
		ca     []byte
		says   string
	}{
		"at another server": {"https://the-real-east.example.com", s.Members[0].Config().CAData, "not to " + server},
		"with another CA":   {server, s.Local.Config().CAData, "another CA"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &accessv1alpha1.ClusterAccess{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"},
				Spec: accessv1alpha1.ClusterAccessSpec{
					Server: c.server, CABundle: c.ca,
					Minter:         &accessv1alpha1.Minter{SecretName: "of-east", ServiceAccountNamespace: "fleet-system", ServiceAccountName: "b"},
					AllowedImports: []accessv1alpha1.AllowedImports{{Namespaces: []string{"team-a"}, ServiceAccounts: []string{"default/lister"}}},
				},
			}
			if err := s.Local.Client().Create(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			r := s.join(t)
			if r.code != 1 || !strings.Contains(r.errOut, "nothing was changed") || !strings.Contains(r.errOut, c.says) {
				t.Errorf("%+v", r)
			}
			if now := s.access(t); now.ResourceVersion != a.ResourceVersion {
				t.Errorf("east is at %s now", now.Spec.Server)
			}
			if made := s.inMember(t); len(made) > 0 {
				t.Errorf("the member has %v", made)
			}
			r = s.run(t, "rbac", "east", "--member-context", "member", "--rules", rules(t))
			if r.code != 1 || !strings.Contains(r.errOut, "nothing was changed") || !strings.Contains(r.errOut, c.says) || len(s.inMember(t)) > 0 {
				t.Errorf("rbac: %+v, and the member has %v", r, s.inMember(t))
			}
			s.changesNothing(t, c.says, "leave", "east", "--member-context", "member")
			s.annotate(t, a, r.errOut)
			if r := s.run(t, "rbac", "east", "--member-context", "member", "--rules", rules(t)); r.code != 0 {
				t.Errorf("rbac, once the annotation says that it is this cluster: %+v", r)
			}
			if r := s.join(t); r.code != 0 || s.access(t).Spec.Server != server {
				t.Errorf("once the annotation says that it is this cluster: %+v", r)
			}
			if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 {
				t.Fatalf("leave: %+v", r)
			}
		})
	}
}

// annotate notes on an access what an error says.
func (s *stage) annotate(t *testing.T, a *accessv1alpha1.ClusterAccess, says string) {
	t.Helper()
	const note = "kubectl --namespace default annotate clusteraccess.access.fleet-runtime.dev east "
	_, command, found := strings.Cut(says, note)
	key, value, _ := strings.Cut(strings.TrimSpace(command), "=")
	if !found || key == "" || value == "" {
		t.Fatalf("%q is not in:\n%s", note, says)
	}
	a.Annotations = map[string]string{key: value}
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

func TestAMemberOfAnotherProviderGetsRightsOnceItIsKnownWhichClusterItIs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addMember(t, "east", wellAt("https://east.example.com"))
	rbac := func(more ...string) result {
		t.Helper()
		return s.run(t, append([]string{"rbac", "east", "--member-context", "member", "--rules", rules(t)}, more...)...)
	}
	if r := rbac(); r.code != 1 || !strings.Contains(r.errOut, "nobody has noted which cluster") || len(s.inMember(t)) > 0 {
		t.Errorf("%+v, and the member has %v", r, s.inMember(t))
	}
	for _, c := range []struct {
		identity string
		code     int
	}{{"another", 1}, {string(systemNamespace(t, s.Members[0].Client()).UID), 0}} {
		m := &membersv1alpha1.Member{}
		if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, m); err != nil {
			t.Fatal(err)
		}
		m.Status.Identity = c.identity
		if err := s.Local.Client().Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if r := rbac("--service-account", "team/worker"); r.code != c.code {
			t.Errorf("where it is %s: %+v", c.identity, r)
		}
	}
	before := s.madeByMcctl(t)
	if r := rbac(); r.code != 2 || !strings.Contains(r.errOut, "--service-account") || !maps.Equal(before, s.madeByMcctl(t)) {
		t.Errorf("where nobody says by which account the controllers come: %+v", r)
	}
}

// TestAMemberThatSaysWhatCannotBeItsIdentityIsRefused: the command that notes the identity is for a shell.
func TestAMemberThatSaysWhatCannotBeItsIdentityIsRefused(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	a := &accessv1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"},
		Spec: accessv1alpha1.ClusterAccessSpec{
			Server: "https://the-real-east.example.com",
			Minter: &accessv1alpha1.Minter{SecretName: "of-east", ServiceAccountNamespace: "fleet-system", ServiceAccountName: "b"},
		},
	}
	if err := s.Local.Client().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]string{"a command": "x; touch here", "another one": "$(touch here)", "nothing": "", "lines": "x\ntouch here"} {
		s.addFront(t, "front", s.Members[0], func(w http.ResponseWriter, req *http.Request) bool {
			is := strings.HasSuffix(req.URL.Path, "/namespaces/kube-system")
			if is {
				system := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: named("kube-system")}
				system.UID = types.UID(uid)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(system)
			}
			return is
		})
		for _, args := range [][]string{
			{"rbac", "east", "--rules", rules(t)}, {"leave", "east"}, {"join", "east", "--rules", rules(t), "--advertise-server", "https://front.example.com"},
		} {
			r := s.run(t, append(args, "--member-context", "front")...)
			if r.code != 1 || !strings.Contains(r.errOut, "the member (https://") || strings.Contains(r.errOut, "touch") || strings.Contains(r.errOut, "annotate") {
				t.Errorf("%s: %q: %+v", name, args, r)
			}
		}
	}
	if now := s.access(t); now.ResourceVersion != a.ResourceVersion {
		t.Error("the ClusterAccess was changed")
	}
}
