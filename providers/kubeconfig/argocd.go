package kubeconfig

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Labels that members of the format [ArgoCD] have if their Secrets have the key, and its value can be that of a label.
const (
	// ArgoCDProjectLabel has the value of the key project.
	ArgoCDProjectLabel = "fleet-runtime.dev/argocd-project"
	// ArgoCDShardLabel has the value of the key shard.
	ArgoCDShardLabel = "fleet-runtime.dev/argocd-shard"
	// ArgoCDNamespacesLabel has the value of the key namespaces, with "_" between them: the credentials may be good
	// for these namespaces alone.
	ArgoCDNamespacesLabel = "fleet-runtime.dev/argocd-namespaces"
	// ArgoCDClusterResourcesLabel has the value of the key clusterResources.
	ArgoCDClusterResourcesLabel = "fleet-runtime.dev/argocd-cluster-resources"
)

// The label of Argo CD's cluster Secrets, and the server that stands for the cluster that Argo CD runs in:
// https://argo-cd.readthedocs.io/en/stable/operator-manual/declarative-setup/#clusters
const (
	argoCDLabel       = "argocd.argoproj.io/secret-type"
	argoCDLabelValue  = "cluster"
	argoCDLocalServer = "https://kubernetes.default.svc"
)

// ArgoCD is the format of the Secrets that Argo CD keeps its clusters in, with the label argocd.argoproj.io/secret-type
// set to "cluster". The key name has the name of the member, server its address, and config the way to authenticate, as
// JSON. Argo CD itself reads them in its own namespace alone.
//
// Its execProviderConfig and awsAuthConfig run programs, so they need [Allow.Exec]. For awsAuthConfig that is Argo CD's
// argocd-k8s-auth, as in Argo CD. A Secret with the server https://kubernetes.default.svc describes no member: that is
// the local cluster, which is watched with mcbuilder.InLocalCluster.
//
// A project that cannot be the value of a label is an error: a selector of members by their projects would miss it.
func ArgoCD() Format {
	return Format{
		Selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{argoCDLabel: argoCDLabelValue})},
		Members:   argoCDMembers,
	}
}

func argoCDMembers(secret *corev1.Secret, reading Reading) ([]fleet.Member, error) {
	// Argo CD ignores slashes at the end.
	server := strings.TrimRight(string(secret.Data["server"]), "/")
	if server == argoCDLocalServer {
		return nil, nil
	}
	m := fleet.Member{}
	if selected, err := selectArgoCD(server, secret.Data); err != nil {
		m.Err = err
	} else {
		m = selected.member("", reading.Allow)
	}
	m.Name = fleet.ClusterName(secret.Data["name"])
	m.Labels = argoCDLabels(secret.Data)
	return []fleet.Member{m}, nil
}

func argoCDLabels(data map[string][]byte) map[string]string {
	namespaces := strings.FieldsFunc(string(data["namespaces"]), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	found := map[string]string{
		ArgoCDProjectLabel:          string(data["project"]),
		ArgoCDShardLabel:            string(data["shard"]),
		ArgoCDNamespacesLabel:       strings.Join(namespaces, "_"),
		ArgoCDClusterResourcesLabel: string(data["clusterResources"]),
	}
	maps.DeleteFunc(found, func(_, value string) bool {
		return value == "" || len(validation.IsValidLabelValue(value)) > 0
	})
	return found
}

// argoCDConfig is what the key config holds: ClusterConfig of
// https://github.com/argoproj/argo-cd/blob/master/pkg/apis/application/v1alpha1/types.go. As there, fields that are not
// known count for nothing.
type argoCDConfig struct {
	Username           string      `json:"username"`
	Password           string      `json:"password"`
	BearerToken        string      `json:"bearerToken"`
	TLS                argoCDTLS   `json:"tlsClientConfig"`
	AWS                *argoCDAWS  `json:"awsAuthConfig"`
	Exec               *argoCDExec `json:"execProviderConfig"`
	DisableCompression bool        `json:"disableCompression"`
	ProxyURL           string      `json:"proxyUrl"`
}

type argoCDTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName"`
	// PEM in base64, decoded later, so that an error can name the field.
	CertData string `json:"certData"`
	KeyData  string `json:"keyData"`
	CAData   string `json:"caData"`
}

type argoCDAWS struct {
	ClusterName string `json:"clusterName"`
	RoleARN     string `json:"roleARN"` //nolint:tagliatelle // the name is Argo CD's
	Profile     string `json:"profile"`
}

type argoCDExec struct {
	Command            string            `json:"command"`
	Args               []string          `json:"args"`
	Env                map[string]string `json:"env"`
	APIVersion         string            `json:"apiVersion"`
	InstallHint        string            `json:"installHint"`
	ProvideClusterInfo bool              `json:"provideClusterInfo"`
	Config             json.RawMessage   `json:"config"`
}

const (
	argoCDExecField = "execProviderConfig"
	argoCDAWSField  = "awsAuthConfig"
)

// termsOfArgoCD returns the terms of a Secret whose programs are named in the field exec.
func termsOfArgoCD(exec string) terms {
	return terms{
		whole: "Secret of Argo CD",
		user:  "config",
		parts: "config",
		field: func(name string) string {
			switch name {
			case fieldProxy:
				return "proxyUrl"
			case fieldInsecure:
				return "tlsClientConfig.insecure"
			case fieldCA:
				return "tlsClientConfig.caData"
			case fieldCert:
				return "tlsClientConfig.certData"
			case fieldKey:
				return "tlsClientConfig.keyData"
			case fieldExec:
				return exec
			default:
				return name
			}
		},
	}
}

// selectArgoCD reads the keys config and project of a Secret. A config that is empty or missing has nothing in it.
func selectArgoCD(server string, data map[string][]byte) (*selection, error) {
	whole := termsOfArgoCD(argoCDExecField)
	invalid := whole.invalid
	if server == "" {
		return nil, invalid("it has no server")
	}
	if len(validation.IsValidLabelValue(string(data["project"]))) > 0 {
		return nil, invalid("its project cannot be the value of the label %s", ArgoCDProjectLabel)
	}
	text := cmp.Or(string(data["config"]), "{}")
	if err := whole.checkSize(len(text)); err != nil {
		return nil, err
	}
	c := argoCDConfig{}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		// The parser's message quotes what it has read; the path of the field is made of names alone.
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return nil, invalid("%s in config has a value of the wrong type", wrong.Field)
		}
		return nil, invalid("config is no JSON object")
	}
	return c.selection(server)
}

// selection says the same in the words of a kubeconfig. As in Argo CD, awsAuthConfig goes before execProviderConfig, and
// both before other credentials but certificates.
func (c argoCDConfig) selection(server string) (*selection, error) {
	s := &selection{terms: termsOfArgoCD(argoCDExecField)}
	s.cluster = clientcmdapi.Cluster{
		Server:                server,
		TLSServerName:         c.TLS.ServerName,
		InsecureSkipTLSVerify: c.TLS.Insecure,
		ProxyURL:              c.ProxyURL,
		DisableCompression:    c.DisableCompression,
	}
	switch {
	case c.AWS != nil:
		s.terms = termsOfArgoCD(argoCDAWSField)
		s.user.Exec = c.AWS.exec()
	case c.Exec != nil:
		s.user.Exec, s.cluster.Extensions = c.Exec.exec()
	default:
		s.user.Token, s.user.Username, s.user.Password = c.BearerToken, c.Username, c.Password
	}
	for _, pem := range []struct {
		field, text string
		to          *[]byte
	}{
		{fieldCA, c.TLS.CAData, &s.cluster.CertificateAuthorityData},
		{fieldCert, c.TLS.CertData, &s.user.ClientCertificateData},
		{fieldKey, c.TLS.KeyData, &s.user.ClientKeyData},
	} {
		decoded, err := base64.StdEncoding.DecodeString(pem.text)
		if err != nil {
			return nil, s.terms.invalid("%s is no base64", s.terms.field(pem.field))
		}
		if len(decoded) > 0 {
			*pem.to = decoded
		}
	}
	if (s.user.ClientCertificateData == nil) != (s.user.ClientKeyData == nil) {
		return nil, s.terms.invalid("%s and %s need each other", s.terms.field(fieldCert), s.terms.field(fieldKey))
	}
	return s, nil
}

// exec returns what Argo CD runs for it.
func (aws argoCDAWS) exec() *clientcmdapi.ExecConfig {
	args := []string{"aws", "--cluster-name", aws.ClusterName}
	if aws.RoleARN != "" {
		args = append(args, "--role-arn", aws.RoleARN)
	}
	if aws.Profile != "" {
		args = append(args, "--profile", aws.Profile)
	}
	return &clientcmdapi.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1beta1",
		Command:         "argocd-k8s-auth",
		Args:            args,
		InstallHint:     "argocd-k8s-auth comes with Argo CD; awsAuthConfig in a Secret of Argo CD asks for it",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
}

// exec returns the program to run, and the extensions of a cluster that hold what is passed on to it.
func (e argoCDExec) exec() (*clientcmdapi.ExecConfig, map[string]runtime.Object) {
	program := &clientcmdapi.ExecConfig{
		APIVersion:         e.APIVersion,
		Command:            e.Command,
		Args:               e.Args,
		InstallHint:        e.InstallHint,
		ProvideClusterInfo: e.ProvideClusterInfo,
		InteractiveMode:    clientcmdapi.NeverExecInteractiveMode,
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		program.Env = append(program.Env, clientcmdapi.ExecEnvVar{Name: name, Value: e.Env[name]})
	}
	if len(e.Config) == 0 || string(e.Config) == "null" {
		return program, nil
	}
	return program, map[string]runtime.Object{
		// https://kubernetes.io/docs/reference/config-api/client-authentication.v1/#client-authentication-k8s-io-v1-Cluster
		"client.authentication.k8s.io/exec": &runtime.Unknown{Raw: e.Config, ContentType: runtime.ContentTypeJSON},
	}
}
