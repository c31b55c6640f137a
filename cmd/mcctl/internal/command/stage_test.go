package command_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// stage is a hub and a member, and a kubeconfig with the contexts hub and member.
type stage struct {
	*mctest.Fleet

	kubeconfig string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageOf(t, 1)
}

// newStageOf returns a stage of which only the first member is in the kubeconfig.
func newStageOf(t *testing.T, members int) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, accessv1alpha1.AddToScheme, membersv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{Fleet: pool.Start(t, mctest.Options{Clusters: members, Scheme: scheme, CRDs: crds(t)})}
	s.kubeconfig = s.writeKubeconfig(t)
	return s
}

// crds are those of the hub. The member has them too, and no use for them.
func crds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var all []*apiextensionsv1.CustomResourceDefinition
	for document := range strings.SplitSeq(accessv1alpha1.CRDs()+"\n---\n"+membersv1alpha1.CRD(), "\n---\n") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(document), crd); err != nil {
			t.Fatal(err)
		}
		if crd.Name != "" {
			all = append(all, crd)
		}
	}
	return all
}

func (s *stage) writeKubeconfig(t *testing.T) string {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	for name, cp := range map[string]*mctest.ControlPlane{"hub": s.Local, "member": s.Members[0]} {
		one, err := clientcmd.Load(cp.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		at := one.Contexts[one.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = one.Clusters[at.Cluster], one.AuthInfos[at.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	merged.CurrentContext = "hub"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// result is what became of one run of mcctl.
type result struct {
	code        int
	out, errOut string
}

// run runs mcctl against the stage.
func (s *stage) run(t *testing.T, args ...string) result {
	t.Helper()
	args = append([]string{"--kubeconfig", s.kubeconfig}, args...)
	for i, arg := range args {
		if arg == "--member-context" && i > 0 {
			args = append(args, "--member-kubeconfig", s.kubeconfig)
			break
		}
	}
	r := run(t.Context(), args...)
	if !slices.Contains(args, "token") {
		s.checkSecrecy(t, r)
	}
	return r
}

// checkSecrecy looks for what must not be shown: tokens and private keys, whoever has them, and what Secrets of the hub have for minters.
func (s *stage) checkSecrecy(t *testing.T, r result) {
	t.Helper()
	secrets := &corev1.SecretList{}
	if err := s.Local.Client().List(t.Context(), secrets); err != nil {
		t.Fatal(err)
	}
	shown := r.out + r.errOut
	shows := showsSecret(shown)
	for i := range secrets.Items {
		token := string(secrets.Items[i].Data[accessv1alpha1.MinterToken])
		shows = shows || token != "" && strings.Contains(shown, token)
	}
	if shows {
		t.Errorf("a token or key is shown:\n%s", shown)
	}
}

// encoded is text that may be base64 of a token or key.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}`)

// showsSecret reports whether a text has a token or a private key, also in base64.
func showsSecret(text string) bool {
	if jwtShape.MatchString(text) || strings.Contains(text, "PRIVATE KEY") {
		return true
	}
	return slices.ContainsFunc(encoded.FindAllString(text, -1), func(one string) bool {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if decoded, err := encoding.DecodeString(one); err == nil && showsSecret(string(decoded)) {
				return true
			}
		}
		return false
	})
}

func run(ctx context.Context, args ...string) result { return runAs(ctx, "/usr/bin/mcctl", args...) }

// runAs runs mcctl under a path.
func runAs(ctx context.Context, path string, args ...string) result {
	var out, errOut bytes.Buffer
	code := command.Run(ctx, "v1.2.3", append([]string{path}, args...), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// rules writes a file with a role of the controllers.
func rules(t *testing.T) string {
	t.Helper()
	return write(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: checksums
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch, patch]
`)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func tokenRequest(seconds int64, audiences ...string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences}}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Errorf("not so after a minute: %s", what)
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// addUser adds a user to a cluster, and to the kubeconfig under the name of the cluster and its own.
func (s *stage) addUser(t *testing.T, cp *mctest.ControlPlane, name string, may ...rbacv1.PolicyRule) {
	t.Helper()
	config := cp.AddUser(t, name, may...)
	merged, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	merged.AuthInfos[cp.Name+"-"+name] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	if err := clientcmd.WriteToFile(*merged, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
}
