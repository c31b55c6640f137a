package command_test

import (
	"encoding/base64"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// said is all that was written. It is safe for concurrent use.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) note(text ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range text {
		s.text.WriteString(one + "\n")
	}
}

func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// jwtShape is what every token of an account begins with.
var jwtShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{16,}\.eyJ`)

func TestASecretInTheOutputIsNoticed(t *testing.T) {
	t.Parallel()
	part := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"abc","iss":"https://east.example.com"}`))
	token := part + "." + part + "." + part
	key := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA\n-----END EC PRIVATE KEY-----\n"
	for what, text := range map[string]string{
		"a token": token, "a token in base64": base64.StdEncoding.EncodeToString([]byte(token)), "a key": key,
		"a key in base64 of URLs": base64.URLEncoding.EncodeToString([]byte(key)),
		"a kubeconfig in base64":  base64.StdEncoding.EncodeToString([]byte("users: [{user: {client-key-data: " + base64.StdEncoding.EncodeToString([]byte(key)) + "}}]")),
	} {
		if !showsSecret("Reachable: at east\ntoken: \"" + text + "\"\n") {
			t.Errorf("%s goes unnoticed", what)
		}
	}
	harmless := "fleet-runtime.fleet-system.fleet-minter " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIBvTCCAWOgAwIBAgIB\n"))
	if showsSecret(harmless) {
		t.Errorf("%s is taken for a secret", harmless)
	}
}

// TestNeitherTheManagersLogNorTheOutputHasAKeyOrToken is AS-12.5. That released binaries know their version, have checksums and are
// there for each platform is tested in hack/release.
func TestNeitherTheManagersLogNorTheOutputHasAKeyOrToken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	logged, shown := &said{}, &said{}
	s.startManagerThatLogs(t, noMetrics, funcr.New(func(_, line string) { logged.note(line) }, funcr.Options{Verbosity: 10}))
	s.addUser(t, s.Local, "reader")
	ask := func(args ...string) {
		t.Helper()
		r := s.run(t, args...)
		shown.note(r.out, r.errOut)
	}
	if r := s.join(t, "--wait", "2m"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	hidden := s.credentials(t)
	for _, format := range []string{"yaml", "json", "wide"} {
		ask("list", "-o", format)
	}
	ask("join", "east", "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host)
	ask("join", "east", "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host, "--dry-run=server")
	ask("join", "west", "--member-context", "member", "--rules", rules(t), "--advertise-server", "https://127.0.0.1:1", "--dry-run=client", "-o", "json")
	ask("join", "west", "--user", s.Local.Name+"-reader", "--member-context", "member", "--rules", rules(t), "--advertise-server", "https://127.0.0.1:1")
	ask("describe", "east", "--live")
	ask("check", "east", "--rules", rules(t))
	ask("rbac", "east", "--member-context", "member", "--rules", rules(t))
	ask("shards")
	minter := &corev1.Secret{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east-minter"}, minter); err != nil {
		t.Fatal(err)
	}
	minter.Data[accessv1alpha1.MinterToken] = []byte(hidden["the minter's token"] + "x")
	if err := s.Local.Client().Update(t.Context(), minter); err != nil { // a token that the member refuses is none to be shown either
		t.Fatal(err)
	}
	ask("check", "east")
	ask("describe", "east")
	ask("leave", "east", "--member-context", "member")
	for where, text := range map[string]string{"the manager's log": logged.all(), "the output of mcctl": shown.all()} {
		t.Run("AS-12.5 "+where, func(t *testing.T) {
			if !strings.Contains(text, "east") {
				t.Fatalf("it says nothing of the member:\n%s", text)
			}
			if at := jwtShape.FindStringIndex(text); at != nil {
				t.Errorf("there is a token: …%s…", text[max(0, at[0]-80):at[0]])
			}
			for what, value := range hidden {
				if strings.Contains(text, value) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value))) {
					t.Errorf("there is %s", what)
				}
			}
		})
	}
}

// credentials returns the keys and tokens that there are.
func (s *stage) credentials(t *testing.T) map[string]string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, user := range config.AuthInfos {
		all["the key of "+name] = string(user.ClientKeyData)
	}
	all["the minter's token"] = s.minterToken(t, "east")
	for what, value := range all {
		if value == "" {
			t.Fatalf("%s is empty", what)
		}
	}
	return all
}

// asKubeadm writes a kubeconfig with the names that kubeadm gives to those of every cluster.
func asKubeadm(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	from, err := clientcmd.Load(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	old, to := from.Contexts[from.CurrentContext], clientcmdapi.NewConfig()
	to.Clusters["kubernetes"], to.AuthInfos["kubernetes-admin"] = from.Clusters[old.Cluster], from.AuthInfos[old.AuthInfo]
	to.Contexts["kubernetes-admin@kubernetes"] = &clientcmdapi.Context{Cluster: "kubernetes", AuthInfo: "kubernetes-admin"}
	content, err := clientcmd.Write(*to)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, string(content))
}

// TestTwoContextsOfOneNameAreTwoMembersThatJoinAgain is the rest of AS-12.3.
func TestTwoContextsOfOneNameAreTwoMembersThatJoinAgain(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, 2)
	mgr := s.startManager(t, noMetrics)
	names := []string{"east", "west"}
	join := func(i int) {
		t.Helper()
		r := run(t.Context(), "join", names[i], "--kubeconfig", s.kubeconfig, "--member-kubeconfig", asKubeadm(t, s.Members[i]),
			"--member-context", "kubernetes-admin@kubernetes", "--rules", rules(t), "--advertise-server", s.Members[i].Config().Host, "--wait", "2m")
		s.checkSecrecy(t, r)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	t.Run("AS-12.3 two contexts both kubernetes-admin@kubernetes are two clusters", func(t *testing.T) {
		for i, name := range names {
			join(i)
			status, ok := mgr.GetFleet().Status(fleet.ClusterName(name))
			if want := strings.TrimRight(s.Members[i].Config().Host, "/"); !ok || status.Server != want {
				t.Errorf("%s is at %q, want %q", name, status.Server, want)
			}
		}
	})
	t.Run("AS-12.3 new credentials take the place of the old, and the fleet runs on", func(t *testing.T) {
		before := []*fleet.Engagement{engagement(t, mgr, "east"), engagement(t, mgr, "west")}
		old := s.minterToken(t, "east")
		minter := &corev1.ServiceAccount{}
		minter.Namespace, minter.Name = "fleet-system", "fleet-minter"
		if err := s.Members[0].Client().Delete(t.Context(), minter); err != nil { // no token of it is good any more
			t.Fatal(err)
		}
		eventually(t, "the old credentials are refused", func() bool { return s.run(t, "token", "east").code != 0 })
		join(0)
		if s.minterToken(t, "east") == old {
			t.Error("the old credentials are kept")
		}
		if r := s.run(t, "token", "east"); r.code != 0 {
			t.Errorf("the new credentials make no token: %s", r.errOut)
		}
		for i, name := range names {
			if engagement(t, mgr, name) != before[i] {
				t.Errorf("%s was connected anew", name)
			}
		}
	})
}

func (s *stage) minterToken(t *testing.T, member string) string {
	t.Helper()
	secret := &corev1.Secret{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: member + "-minter"}, secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data[accessv1alpha1.MinterToken])
}

func engagement(t *testing.T, mgr mcmanager.Manager, member string) *fleet.Engagement {
	t.Helper()
	e, err := mgr.GetFleet().Engagement(fleet.ClusterName(member))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
