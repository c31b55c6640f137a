package command_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byHand runs the commands that leave prints in the member, as a person would.
func (s *stage) byHand(t *testing.T, printed string) (out string) {
	t.Helper()
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl") + " --cache-dir " + t.TempDir() +
		" --kubeconfig " + s.kubeconfig + " --context member "
	for line := range strings.Lines(printed) {
		rest, is := strings.CutPrefix(strings.TrimSpace(line), "kubectl ")
		if !is {
			continue
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", kubectl+rest)
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
		out += string(text)
	}
	return out
}

// inMember returns what the first member has of what makes it one.
func (s *stage) inMember(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, list := range []client.ObjectList{
		&corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
	} {
		if err := s.Members[0].Client().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			obj := o.(client.Object) //nolint:forcetypeassert // of an API server
			if strings.HasPrefix(obj.GetName(), "fleet") || strings.HasPrefix(obj.GetName(), "checksums") {
				names[obj.GetNamespace()+"/"+obj.GetName()] = true
			}
		}
	}
	return names
}

func TestTheCommandsThatLeavePrintsRemoveWhatWasAppliedOfWhatJoinPrints(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"minted": nil, "federated": {"--federated", "operator"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			west := write(t, strings.Replace(roleDocument, "checksums", "checksums-west", 1))
			for _, printed := range []result{
				s.join(t, append([]string{"--dry-run=client"}, args...)...),
				s.run(t, "join", "west", "--member-context", "member", "--rules", west, "--service-account", "west/fleet",
					"--advertise-server", s.Members[0].Config().Host, "--dry-run=client"),
				s.joinIn(t, "kube-public", "checksums-public", "public/fleet", "--dry-run=client"),
			} {
				if printed.code != 0 {
					t.Fatalf("%+v", printed)
				}
				s.applyPrinted(t, printed.out)
			}
			forced := s.run(t, "leave", "east", "--force")
			if forced.code != 0 {
				t.Fatalf("%+v", forced)
			}
			out := s.byHand(t, forced.out)
			want := []string{"/checksums-public", "/checksums-west", "public/fleet", "public/fleet-minter", "west/fleet", "west/fleet-minter"}
			if got := slices.Sorted(maps.Keys(s.inMember(t))); !slices.Equal(got, want) {
				t.Errorf("there is still %q, want what is of the others, %q:\n%s%s", got, want, forced.out, out)
			}
			if name == "minted" && !strings.Contains(out, "fleet-system") {
				t.Errorf("the namespace is not named:\n%s%s", forced.out, out)
			}
		})
	}
}

func TestTheCommandsThatLeavePrintsRemoveWhatJoinHasMadeAndNothingOfOtherHubs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	other := &rbacv1.ClusterRole{ObjectMeta: named("checksums-of-another-hub")}
	other.Labels = map[string]string{"access.fleet-runtime.dev/member": "east"}
	if err := s.Members[0].Client().Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	forced := s.run(t, "leave", "east", "--force")
	if forced.code != 0 {
		t.Fatalf("%+v", forced)
	}
	out := s.byHand(t, forced.out)
	if got := slices.Sorted(maps.Keys(s.inMember(t))); !slices.Equal(got, []string{"/checksums-of-another-hub"}) {
		t.Errorf("there is still %q:\n%s%s", got, forced.out, out)
	}
}
