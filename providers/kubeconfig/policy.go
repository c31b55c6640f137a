package kubeconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Allow says what kubeconfigs may do beyond naming a server and holding credentials. Whoever writes a kubeconfig that a
// manager follows gets these powers over the manager and its host, so the zero value allows none. Only the entries of
// the context in use count.
//
// Two things need no permission. Impersonation (as) is for the member to grant. A proxy (proxy-url) passes the TLS
// connection on without reading it, and a kubeconfig may name any server anyway: where a manager may connect to is for
// network policies to limit.
type Allow struct {
	// Exec allows users with exec: running a program on the manager's host to get credentials.
	Exec bool
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
	// ReasonInvalid is the [Error.Reason] of a kubeconfig that nobody could use.
	ReasonInvalid = "InvalidKubeconfig"
	// ReasonRefused is the [Error.Reason] of a kubeconfig that needs more than [Allow] allows.
	ReasonRefused = "RefusedKubeconfig"
)

// Error says why a kubeconfig is not used. The message is short and printable. It has names of entries and fields of
// the kubeconfig, but no credentials.
type Error struct {
	reason, message string
}

func (e *Error) Error() string { return e.message }

// Reason returns [ReasonInvalid] or [ReasonRefused].
func (e *Error) Reason() string { return e.reason }

// maxMessage is how long the message of an [Error] gets, in bytes.
const maxMessage = 800

func newError(reason, format string, args ...any) *Error {
	message := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, fmt.Sprintf(format, args...))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return &Error{reason: reason, message: message}
}

func invalid(format string, args ...any) *Error {
	return newError(ReasonInvalid, "the kubeconfig cannot be used: "+format, args...)
}

// entry names an entry of a kubeconfig in messages.
func entry(kind, name string) string {
	if len(name) > 80 {
		name = strings.ToValidUTF8(name[:80], "") + "…"
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// Member returns the member that a kubeconfig describes: with Config and Revision, or with an [Error] as Err. The empty
// contextName stands for the kubeconfig's current context.
//
// Revision is a hash of the entries of the context, whatever else is in the kubeconfig and however it is written.
func Member(name fleet.ClusterName, kubeconfig []byte, contextName string, allow Allow) fleet.Member {
	m := fleet.Member{Name: name}
	m.Config, m.Revision, m.Err = parse(kubeconfig, contextName, allow)
	return m
}

func parse(kubeconfig []byte, contextName string, allow Allow) (config *rest.Config, revision string, err error) {
	selected, err := selectContext(kubeconfig, contextName)
	if err != nil {
		return nil, "", err
	}
	if err := selected.check(allow); err != nil {
		return nil, "", err
	}
	if revision, err = selected.revision(); err != nil {
		return nil, "", err
	}
	if config, err = selected.restConfig(); err != nil {
		return nil, "", err
	}
	return config, revision, nil
}

// selection is the part of a kubeconfig that one context uses.
type selection struct {
	clusterName, userName string
	cluster               clientcmdapi.Cluster
	user                  clientcmdapi.AuthInfo
}

// lineOf finds the line that a parser's message tells.
var lineOf = regexp.MustCompile(`line \d+`)

func selectContext(kubeconfig []byte, contextName string) (*selection, error) {
	if len(bytes.TrimSpace(kubeconfig)) == 0 {
		return nil, invalid("it is empty")
	}
	loaded, err := clientcmd.Load(kubeconfig)
	switch {
	case err == nil:
	// Of the parsers' messages nothing is passed on but the line, because they quote what they have read.
	case strings.Contains(err.Error(), "duplicate name"):
		return nil, invalid("two of its clusters, users or contexts have the same name")
	default:
		line := cmp.Or(lineOf.FindString(err.Error()), "its content")
		return nil, invalid("%s is no YAML or JSON of apiVersion v1, kind Config", line)
	}
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
	if user == nil {
		return nil, invalid("%s of %s is not in it", entry("user", found.AuthInfo), entry("context", contextName))
	}
	return &selection{clusterName: found.Cluster, userName: found.AuthInfo, cluster: *cluster, user: *user}, nil
}

// power is something that a kubeconfig needs permission for.
type power struct {
	option  string
	allowed bool
}

const schemeHTTP, schemeHTTPS = "http", "https"

// check returns an error that names each field for which permission is missing. It reads no file and runs nothing.
func (s *selection) check(allow Allow) error {
	cluster, user := entry("cluster", s.clusterName), entry("user", s.userName)
	server, err := s.server()
	if err != nil {
		return err
	}
	idpFile := ""
	if s.user.AuthProvider != nil {
		idpFile = s.user.AuthProvider.Config["idp-certificate-authority"]
	}
	files := power{"Files", allow.Files}
	var refused []string
	for _, f := range []struct {
		entry, field string
		used         bool
		needs        power
	}{
		{user, "exec", s.user.Exec != nil, power{"Exec", allow.Exec}},
		{user, "auth-provider", s.user.AuthProvider != nil, power{"AuthProvider", allow.AuthProvider}},
		{user, "auth-provider's idp-certificate-authority", idpFile != "", files},
		{user, "tokenFile", s.user.TokenFile != "", files},
		{user, "client-certificate", s.user.ClientCertificate != "", files},
		{user, "client-key", s.user.ClientKey != "", files},
		{cluster, "certificate-authority", s.cluster.CertificateAuthority != "", files},
		{cluster, "insecure-skip-tls-verify", s.cluster.InsecureSkipTLSVerify, power{"InsecureTLS", allow.InsecureTLS}},
		{cluster, "server with http://", server.Scheme == schemeHTTP, power{"PlainHTTP", allow.PlainHTTP}},
	} {
		if f.used && !f.needs.allowed {
			refused = append(refused, fmt.Sprintf("%s uses %s, which needs the provider's option Allow.%s", f.entry, f.field, f.needs.option))
		}
	}
	if len(refused) > 0 {
		return newError(ReasonRefused, "the kubeconfig is refused: %s", strings.Join(refused, "; "))
	}
	return nil
}

// server returns the address of the server. It checks that of the proxy too.
func (s *selection) server() (*url.URL, error) {
	cluster := entry("cluster", s.clusterName)
	server, err := url.Parse(s.cluster.Server)
	switch {
	case err != nil || server.Hostname() == "" || !slices.Contains([]string{schemeHTTP, schemeHTTPS}, server.Scheme):
		return nil, invalid("server of %s must be a URL that begins with https://", cluster)
	case server.User != nil:
		return nil, invalid("server of %s has a user or password in the URL; they belong into %s", cluster, entry("user", s.userName))
	case s.cluster.ProxyURL == "":
		return server, nil
	}
	proxy, err := url.Parse(s.cluster.ProxyURL)
	if err != nil || proxy.Hostname() == "" || !slices.Contains([]string{schemeHTTP, schemeHTTPS, "socks5"}, proxy.Scheme) {
		return nil, invalid("proxy-url of %s must be a URL that begins with https://, http:// or socks5://", cluster)
	}
	return server, nil
}

// restConfig must only be called after check: it may read files that the kubeconfig names.
func (s *selection) restConfig() (*rest.Config, error) {
	// The entries get plain names, so that client-go's messages name nothing from the kubeconfig.
	const cluster, user, context = "cluster", "user", "context"
	config, err := clientcmd.NewNonInteractiveClientConfig(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{cluster: &s.cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: &s.user},
		Contexts:  map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
	}, context, nil, nil).ClientConfig()
	if err != nil {
		return nil, invalid("%s with %s: %v", entry("cluster", s.clusterName), entry("user", s.userName), err)
	}
	if config.Insecure && (len(config.CAData) > 0 || config.CAFile != "") {
		return nil, invalid("%s has both insecure-skip-tls-verify and a certificate-authority", entry("cluster", s.clusterName))
	}
	if len(config.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(config.CAData) {
		return nil, invalid("certificate-authority-data of %s is no PEM certificate", entry("cluster", s.clusterName))
	}
	if len(config.CertData) > 0 && len(config.KeyData) > 0 {
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			return nil, invalid("client-certificate-data and client-key-data of %s are no PEM certificate with its key",
				entry("user", s.userName))
		}
	}
	return config, nil
}

// revision returns a hash of all that the rest.Config is made of.
func (s *selection) revision() (string, error) {
	used := *s
	used.user.Extensions = nil
	if used.user.Exec == nil {
		used.cluster.Extensions = nil // only exec reads them
	}
	text, err := json.Marshal([]any{used.cluster, used.user})
	if err != nil {
		return "", invalid("the extensions of %s are no JSON objects", entry("cluster", s.clusterName))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
