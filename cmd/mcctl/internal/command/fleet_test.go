package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/access"
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/members"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	provider "github.com/fleet-runtime/fleet-runtime/providers/access"
	fleetstage "github.com/fleet-runtime/fleet-runtime/test/stage"
)

// noMetrics are those of a manager whose metrics nobody reads.
var noMetrics = server.Options{BindAddress: "0"}

// startManager runs a manager of the hub until the test ends.
func (s *stage) startManager(t *testing.T, metrics server.Options, opts ...mcmanager.FleetOption) mcmanager.Manager {
	t.Helper()
	return s.startManagerThatLogs(t, metrics, logr.Discard(), opts...)
}

func (s *stage) startManagerThatLogs(t *testing.T, metrics server.Options, log logr.Logger, opts ...mcmanager.FleetOption) mcmanager.Manager {
	t.Helper()
	mgr := s.newManager(t, metrics, log, opts...)
	start(t, mgr)
	return mgr
}

func (s *stage) newManager(t *testing.T, metrics server.Options, log logr.Logger, opts ...mcmanager.FleetOption) mcmanager.Manager {
	t.Helper()
	mgr, err := mcmanager.New(s.Local.Config(), &provider.Provider{Namespace: "default"}, ctrl.Options{
		Scheme: s.Local.Client().Scheme(), Metrics: metrics, Logger: log,
		Controller: config.Controller{SkipNameValidation: new(true)},
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Setup(mgr, members.Options{Namespace: "default"}); err != nil {
		t.Fatal(err)
	}
	if err := (access.Controller{}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	return mgr
}

// start runs a manager until the test ends.
func start(t *testing.T, mgr mcmanager.Manager) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
}

// TestAClusterJoinsAndLeavesAFleetThatRuns is AS-12.2 and AS-12.4.
func TestAClusterJoinsAndLeavesAFleetThatRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startManager(t, noMetrics)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	fleetstage.Within(t, 10*time.Second, "the ClusterAccess is Ready, and so is a Member", func() bool {
		m := &membersv1alpha1.Member{}
		err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, m)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(s.access(t).Status.Conditions, accessv1alpha1.ConditionReady) &&
			meta.IsStatusConditionTrue(m.Status.Conditions, membersv1alpha1.ConditionReady)
	})
	if r := s.join(t, "--wait", "2m"); r.code != 0 || !strings.Contains(r.errOut, "east is Ready") {
		t.Fatalf("join again: %+v", r)
	}
	if line := fields(s.run(t, "list").out)["east"]; !strings.HasPrefix(line, "Ready") {
		t.Errorf("list: %q", line)
	}
	if r := s.run(t, "describe", "east"); r.code != 0 || strings.Contains(r.out, "Do this") {
		t.Errorf("describe: %+v", r)
	}
	t.Run("paused and resumed", func(t *testing.T) {
		if r := s.run(t, "pause", "east"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		eventually(t, "describe says how it is resumed", func() bool {
			r := s.run(t, "describe", "east")
			return r.code == 3 && strings.Contains(r.out, "mcctl resume east")
		})
		if r := s.run(t, "resume", "east"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		eventually(t, "it is Ready", func() bool { return s.run(t, "describe", "east").code == 0 })
	})
	t.Run("gone", func(t *testing.T) {
		if r := s.run(t, "leave", "east", "--member-context", "member", "--dependents", "prune"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		eventually(t, "list does not have it", func() bool { return fields(s.run(t, "list").out)["east"] == "" })
	})
}

// TestAClusterJoinsWithoutAnyCredential gives the member's API server what federate prints.
func TestAClusterJoinsWithoutAnyCredential(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	member := s.Members[0]
	accesstest.OpenDiscovery(t, s.Local)
	s.Local.RestartWith(t, "--service-account-jwks-uri="+accesstest.Issuer(s.Local)+"openid/v1/jwks") // the member reaches it there
	manager := &corev1.ServiceAccount{}
	manager.Namespace, manager.Name = "default", "manager"
	if err := s.Local.Client().Create(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	federated := []string{"--member-context", "member", "--advertise-server", member.Config().Host}
	printed := s.run(t, append([]string{"federate", "east", "--service-account", "manager"}, federated...)...)
	if printed.code != 0 {
		t.Fatalf("federate: %+v", printed)
	}
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(file, []byte(printed.out), 0o600); err != nil {
		t.Fatal(err)
	}
	member.RestartWith(t, "--authentication-config="+file)

	s.startManager(t, noMetrics)
	if r := s.join(t, "--federated", "manager", "--wait", "2m"); r.code != 0 {
		t.Fatalf("join: %+v\n%s", r, s.run(t, "describe", "east").out)
	}
	secrets := &corev1.SecretList{}
	if err := s.Local.Client().List(t.Context(), secrets); err != nil || len(secrets.Items) > 0 {
		t.Errorf("there are %d Secrets in the hub, %v; want none", len(secrets.Items), err)
	}
	bindings := &rbacv1.ClusterRoleBinding{}
	if err := member.Client().Get(t.Context(), client.ObjectKey{Name: "checksums"}, bindings); err != nil || bindings.Subjects[0].Kind != rbacv1.UserKind {
		t.Errorf("the rights are bound to %+v, %v", bindings.Subjects, err)
	}
	if r := s.run(t, "check", "east", "--rules", rules(t)); r.code != 0 {
		t.Errorf("check: %+v", r)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 {
		t.Errorf("leave: %+v", r)
	}
}

// TestEachKindOfCredentialOfTheCallerWillDo is the rest of AS-12.2: what is in the caller's kubeconfig is not passed on.
func TestEachKindOfCredentialOfTheCallerWillDo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	admin := &rbacv1.ClusterRoleBinding{}
	admin.Name = "test-admin"
	admin.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	admin.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}}
	if err := s.Members[0].Client().Create(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = "default", "default"
	if err := client.IgnoreAlreadyExists(s.Members[0].Client().Create(t.Context(), account)); err != nil {
		t.Fatal(err)
	}
	request := tokenRequest(3600)
	if err := s.Members[0].Client().SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	token, tokenFile := request.Status.Token, filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	caFile := write(t, string(s.Members[0].Config().CAData))
	exec := `{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, 'printf "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}" "$(cat ` + tokenFile + `)"']}}`
	for name, user := range map[string]string{"a token": "{token: " + token + "}", "a file with a token": "{tokenFile: " + tokenFile + "}", "a program": exec} {
		t.Run(name, func(t *testing.T) {
			path := write(t, `{apiVersion: v1, kind: Config, current-context: m, contexts: [{name: m, context: {cluster: m, user: m}}],
clusters: [{name: m, cluster: {server: "`+s.Members[0].Config().Host+`", certificate-authority: "`+caFile+`"}}], users: [{name: m, user: `+user+`}]}`)
			r := run(t.Context(), "join", "east", "--kubeconfig", s.kubeconfig, "--member-kubeconfig", path, "--rules", rules(t),
				"--advertise-server", s.Members[0].Config().Host)
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			if strings.Contains(r.out+r.errOut, token) {
				t.Error("the caller's token is shown")
			}
		})
	}
}
