package kubeconfig

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Allow says what kubeconfigs, and what takes their place in other formats, may do beyond naming a server and holding
// credentials. Whoever writes a kubeconfig that a manager follows gets these powers over the manager and its host, so
// the zero value allows none. Only the entries of the context in use count.
//
// Two things need no permission. Impersonation (as) is for the member to grant. A proxy (proxy-url) passes the TLS
// connection on without reading it, and a kubeconfig may name any server anyway: where a manager may connect to is for
// network policies to limit.
type Allow struct {
	// Exec has the programs that users with exec may run on the manager's host to get credentials, in the ways that are
	// listed. A program may be listed several times. In Secrets of Argo CD, execProviderConfig and awsAuthConfig run
	// programs.
	Exec []Program
	// AuthProvider allows users with auth-provider. The manager must import the client-go plugin for it.
	AuthProvider bool
	// Files allows certificate-authority, client-certificate, client-key and tokenFile: reading files on the manager's
	// host, and sending what they hold to the server. client-go reads them again from time to time.
	Files bool
	// InsecureTLS allows insecure-skip-tls-verify: sending credentials to whoever answers.
	InsecureTLS bool
	// PlainHTTP allows servers with http://. client-go sends them no credentials.
	PlainHTTP bool
}

const (
	// ReasonInvalid is the [Error.Reason] of a kubeconfig that nobody could use, or of what takes its place.
	ReasonInvalid = "InvalidKubeconfig"
	// ReasonRefused is the [Error.Reason] of a kubeconfig that needs more than [Allow] allows, or of what takes its
	// place.
	ReasonRefused = "RefusedKubeconfig"
)

// Error says why a kubeconfig, or what takes its place, is not used. The message is short and printable. It has names of
// entries and fields, but no credentials.
type Error struct {
	reason, message string
}

func (e *Error) Error() string { return e.message }

// Reason returns [ReasonInvalid] or [ReasonRefused].
func (e *Error) Reason() string { return e.reason }

// maxMessage is how long the message of an [Error] gets, in bytes.
const maxMessage = 800

func newError(reason, format string, args ...any) *Error {
	return &Error{reason: reason, message: oneline.Text(fmt.Sprintf(format, args...), maxMessage)}
}

// entry names an entry of a kubeconfig in messages.
func entry(kind, name string) string {
	return fmt.Sprintf("%s %q", kind, oneline.Text(name, 80))
}

// Member returns the member that a kubeconfig describes: with Config and Revision, or with an [Error] as Err. The empty
// contextName stands for the kubeconfig's current context. What is read is limited as by [Load].
//
// Revision is a hash of the entries of the context, whatever else is in the kubeconfig and however it is written.
// Expires is when its client certificate or its token ends, of a token if that is a JWT.
func Member(name fleet.ClusterName, kubeconfig []byte, contextName string, allow Allow) fleet.Member {
	selected, err := selectContext(kubeconfig, contextName)
	if err != nil {
		return fleet.Member{Name: name, Err: err}
	}
	return selected.member(name, allow)
}

// selection is what a cluster is reached by: the entries of a kubeconfig that one context uses, or what another
// description says, in the words of a kubeconfig.
type selection struct {
	cluster clientcmdapi.Cluster
	user    clientcmdapi.AuthInfo
	terms   terms
}

// terms say what things are called where a selection comes from, for messages.
type terms struct {
	whole string                   // what describes the cluster, such as "kubeconfig"
	user  string                   // what has the credentials, such as `user "admin"`
	parts string                   // what has all, such as `cluster "east" with user "admin"`
	field func(name string) string // such as `exec of user "admin"`, for the name that kubeconfigs have for a field
}

const wholeKubeconfig = "kubeconfig"

// Fields that other descriptions have too, as kubeconfigs call them.
const (
	fieldServer   = "server"
	fieldProxy    = "proxy-url"
	fieldInsecure = "insecure-skip-tls-verify"
	fieldCA       = "certificate-authority-data"
	fieldCert     = "client-certificate-data"
	fieldKey      = "client-key-data"
	fieldExec     = "exec"
)

// fieldCAFile is a field that only kubeconfigs have.
const fieldCAFile = "certificate-authority"

// termsOfKubeconfig returns the terms of two entries.
func termsOfKubeconfig(clusterName, userName string) terms {
	cluster, user := entry("cluster", clusterName), entry("user", userName)
	return terms{
		whole: wholeKubeconfig,
		user:  user,
		parts: cluster + " with " + user,
		field: func(name string) string {
			switch name {
			case fieldServer, fieldProxy, fieldInsecure, fieldCA, fieldCAFile:
				return name + " of " + cluster
			default:
				return name + " of " + user
			}
		},
	}
}

// invalid returns the error of a description that nobody could use.
func (t terms) invalid(format string, args ...any) *Error {
	return newError(ReasonInvalid, "the "+t.whole+" cannot be used: "+format, args...)
}

// refused returns the error of a description that others might use.
func (t terms) refused(format string, args ...any) *Error {
	return newError(ReasonRefused, "the "+t.whole+" is refused: "+format, args...)
}

func selectContext(kubeconfig []byte, contextName string) (*selection, error) {
	loaded, err := Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	invalid := terms{whole: wholeKubeconfig}.invalid
	contextName = cmp.Or(contextName, loaded.CurrentContext)
	if contextName == "" {
		return nil, invalid("it has no current-context, and no other context was asked for")
	}
	found := loaded.Contexts[contextName]
	if found == nil {
		return nil, invalid("%s is not in it", entry("context", contextName))
	}
	cluster, user := loaded.Clusters[found.Cluster], loaded.AuthInfos[found.AuthInfo]
	if cluster == nil {
		return nil, invalid("%s of %s is not in it", entry("cluster", found.Cluster), entry("context", contextName))
	}
	if found.AuthInfo == "" && user == nil {
		user = clientcmdapi.NewAuthInfo() // as kubectl does, for servers that ask for no credentials
	}
	if user == nil {
		return nil, invalid("%s of %s is not in it", entry("user", found.AuthInfo), entry("context", contextName))
	}
	return &selection{cluster: *cluster, user: *user, terms: termsOfKubeconfig(found.Cluster, found.AuthInfo)}, nil
}

// member returns what is selected as a member, if it needs no more than is allowed.
func (s *selection) member(name fleet.ClusterName, allow Allow) fleet.Member {
	config, revision, err := s.read(allow)
	if err != nil {
		return fleet.Member{Name: name, Err: err}
	}
	return fleet.Member{Name: name, Config: config, Revision: revision, Expires: expiry(config)}
}

func (s *selection) read(allow Allow) (config *rest.Config, revision string, err error) {
	if err := s.check(allow); err != nil {
		return nil, "", err
	}
	if revision, err = s.revision(); err != nil {
		return nil, "", err
	}
	if config, err = s.restConfig(); err != nil {
		return nil, "", err
	}
	return config, revision, nil
}

// power is something that a description needs permission for.
type power struct {
	option  string
	allowed bool
}

const schemeHTTP, schemeHTTPS = "http", "https"

// check returns an error that names each field for which permission is missing. It reads no file and runs nothing.
func (s *selection) check(allow Allow) error {
	server, err := s.server()
	if err != nil {
		return err
	}
	idpFile := ""
	if s.user.AuthProvider != nil {
		idpFile = s.user.AuthProvider.Config["idp-certificate-authority"]
	}
	field, files := s.terms.field, power{"Files", allow.Files}
	var refused []string
	if why := s.whyNotRun(allow.Exec, server.Hostname()); why != "" {
		refused = append(refused, fmt.Sprintf("%s needs the provider's option Allow.Exec: %s", field(fieldExec), why))
	}
	for _, f := range []struct {
		field string
		used  bool
		needs power
	}{
		{field("auth-provider"), s.user.AuthProvider != nil, power{"AuthProvider", allow.AuthProvider}},
		{field("auth-provider's idp-certificate-authority"), idpFile != "", files},
		{field("tokenFile"), s.user.TokenFile != "", files},
		{field("client-certificate"), s.user.ClientCertificate != "", files},
		{field("client-key"), s.user.ClientKey != "", files},
		{field(fieldCAFile), s.cluster.CertificateAuthority != "", files},
		{field(fieldInsecure), s.cluster.InsecureSkipTLSVerify, power{"InsecureTLS", allow.InsecureTLS}},
		{field(fieldServer) + " with http://", server.Scheme == schemeHTTP, power{"PlainHTTP", allow.PlainHTTP}},
	} {
		if f.used && !f.needs.allowed {
			refused = append(refused, fmt.Sprintf("%s needs the provider's option Allow.%s", f.field, f.needs.option))
		}
	}
	if len(refused) > 0 {
		return s.terms.refused("%s", strings.Join(refused, "; "))
	}
	return nil
}

// server returns the address of the server. It checks that of the proxy too.
func (s *selection) server() (*url.URL, error) {
	field, invalid := s.terms.field, s.terms.invalid
	server, err := url.Parse(s.cluster.Server)
	switch {
	case err != nil || server.Hostname() == "" || !slices.Contains([]string{schemeHTTP, schemeHTTPS}, server.Scheme):
		return nil, invalid("%s must be a URL that begins with https://", field(fieldServer))
	case slices.Contains(strings.Split(server.Path, "/"), "*"):
		return nil, invalid("%s is the address of many workspaces of kcp, and a member is one: put its path in place of *",
			field(fieldServer))
	case server.User != nil:
		return nil, invalid("%s has a user or password in the URL; they belong into %s", field(fieldServer), s.terms.user)
	case s.cluster.ProxyURL == "":
		return server, nil
	}
	proxy, err := url.Parse(s.cluster.ProxyURL)
	if err != nil || proxy.Hostname() == "" || !slices.Contains([]string{schemeHTTP, schemeHTTPS, "socks5"}, proxy.Scheme) {
		return nil, invalid("%s must be a URL that begins with https://, http:// or socks5://", field(fieldProxy))
	}
	return server, nil
}

var interactiveModes = []clientcmdapi.ExecInteractiveMode{
	clientcmdapi.NeverExecInteractiveMode, clientcmdapi.IfAvailableExecInteractiveMode, clientcmdapi.AlwaysExecInteractiveMode,
}

// restConfig must only be called after check: it may read files that a kubeconfig names.
func (s *selection) restConfig() (*rest.Config, error) {
	field, invalid := s.terms.field, s.terms.invalid
	if s.user.Exec != nil && !slices.Contains(interactiveModes, s.user.Exec.InteractiveMode) {
		// client-go would quote it.
		return nil, invalid("interactiveMode in %s must be one of %q", field(fieldExec), interactiveModes)
	}
	// The entries get plain names, so that client-go's messages name nothing from the kubeconfig.
	const cluster, user, context = "cluster", "user", "context"
	config, err := clientcmd.NewNonInteractiveClientConfig(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{cluster: &s.cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: &s.user},
		Contexts:  map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
	}, context, nil, nil).ClientConfig()
	if err != nil {
		return nil, invalid("%s: %v", s.terms.parts, err)
	}
	if config.ExecProvider != nil && config.ExecProvider.InteractiveMode != clientcmdapi.NeverExecInteractiveMode {
		config.ExecProvider.StdinUnavailable = true
		config.ExecProvider.StdinUnavailableMessage = "the manager of many clusters asks no questions"
	}
	if config.Insecure && (len(config.CAData) > 0 || config.CAFile != "") {
		return nil, invalid("%s cannot be set beside a certificate authority", field(fieldInsecure))
	}
	if len(config.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(config.CAData) {
		return nil, invalid("%s is no PEM certificate", field(fieldCA))
	}
	if len(config.CertData) > 0 && len(config.KeyData) > 0 {
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			return nil, invalid("%s and %s are no PEM certificate with its key", field(fieldCert), field(fieldKey))
		}
	}
	return config, nil
}

// revision returns a hash of all that the rest.Config is made of.
func (s *selection) revision() (string, error) {
	cluster, user := s.cluster, s.user
	user.Extensions = nil
	if user.Exec == nil {
		cluster.Extensions = nil // only exec reads them
	}
	text, err := json.Marshal([]any{cluster, user})
	if err != nil {
		return "", s.terms.invalid("the extensions of %s are no JSON objects", s.terms.parts)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
