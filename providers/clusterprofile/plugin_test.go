package clusterprofile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

// pluginVariable makes the test binary a program that gives credentials.
const pluginVariable = "CLUSTERPROFILE_TEST_PLUGIN"

// pluginName is the name of the access provider that runs it.
const pluginName = "test-plugin"

// pluginConfig is what a profile tells the program of a cluster. The program gives no token if it was called otherwise
// than this says.
type pluginConfig struct {
	Token string            `json:"token"`
	Args  []string          `json:"args,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
}

// plugin answers as https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ says.
func plugin(answer io.Writer) error {
	var call struct {
		Spec struct {
			Cluster *struct {
				Server string       `json:"server"`
				Config pluginConfig `json:"config"`
			} `json:"cluster"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &call); err != nil {
		return err
	}
	if call.Spec.Cluster == nil {
		return errors.New("the cluster was not told")
	}
	config := call.Spec.Cluster.Config
	if got := os.Args[1:]; !slices.Equal(got, config.Args) {
		return fmt.Errorf("the arguments are %q, want %q", got, config.Args)
	}
	for name, want := range config.Env {
		if got := os.Getenv(name); got != want {
			return fmt.Errorf("variable %s is %q, want %q", name, got, want)
		}
	}
	return json.NewEncoder(answer).Encode(clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &clientauthenticationv1.ExecCredentialStatus{Token: config.Token},
	})
}

// pluginProvider is what an operator configures to have the test binary run, with an argument and a variable of its own.
func pluginProvider(t *testing.T) clusterprofile.AccessProvider {
	t.Helper()
	program, err := os.Executable()
	hubtest.Must(t, err)
	return clusterprofile.AccessProvider{
		Name: pluginName,
		ExecConfig: clientcmdv1.ExecConfig{
			APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: program, ProvideClusterInfo: true,
			Args: []string{"--operator"},
			Env:  []clientcmdv1.ExecEnvVar{{Name: pluginVariable, Value: "1"}, {Name: "OPERATOR", Value: "yes"}},
		},
		Args: clusterprofile.AppendArgs,
		Env:  clusterprofile.AppendEnvIfNotExists,
	}
}

// throughPlugin is a cluster as a profile describes it for the program.
func throughPlugin(t *testing.T, cp *mctest.ControlPlane, config pluginConfig, more ...clientcmdv1.NamedExtension) clientcmdv1.Cluster {
	t.Helper()
	return clientcmdv1.Cluster{
		Server: cp.Config().Host, CertificateAuthorityData: cp.Config().CAData,
		Extensions: append(more, extension(t, "client.authentication.k8s.io/exec", config)),
	}
}

func extension(t *testing.T, name string, value any) clientcmdv1.NamedExtension {
	t.Helper()
	raw, err := json.Marshal(value)
	hubtest.Must(t, err)
	return clientcmdv1.NamedExtension{Name: name, Extension: runtime.RawExtension{Raw: raw}}
}

// account is a service account of a cluster.
type account struct{ user, token string }

func newAccount(t *testing.T, cp *mctest.ControlPlane) account {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cp.Config())
	hubtest.Must(t, err)
	namespace := cp.CreateNamespace(t)
	accounts := clients.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}, metav1.CreateOptions{})
	hubtest.Must(t, err)
	request, err := accounts.CreateToken(t.Context(), "fleet", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	hubtest.Must(t, err)
	return account{"system:serviceaccount:" + namespace + ":fleet", request.Status.Token}
}
