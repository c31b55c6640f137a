package command

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// targetFlags say how the hub reaches a member, where that is not as the caller does.
type targetFlags struct {
	server string
	proxy  string
	labels string
}

func (t *targetFlags) addFlags(to *pflag.FlagSet) {
	to.StringVar(&t.server, "advertise-server", "", "The URL at which the hub reaches the member, if it is another one than yours")
	to.StringVar(&t.proxy, "advertise-proxy-url", "", "The proxy by which the hub reaches the member")
	to.StringVarP(&t.labels, "labels", "l", "", "Labels of the member, as KEY=VALUE,...")
}

// longestName leaves room for the suffix of the minter's Secret. Members without one may have longer names.
const longestName = validation.DNS1123SubdomainMaxLength - len("-minter")

func (t *targetFlags) read(name string, longest int, namespace string, config *rest.Config) (membership.Target, error) {
	target := membership.Target{Namespace: namespace, Name: name, ProxyURL: t.proxy, TLSServerName: config.ServerName}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		if strings.Contains(name, "/") {
			return target, usageError("the name %.64q is that of a member with the namespace of its ClusterAccess: name that with --namespace", name)
		}
		return target, usageError("the name %.64q cannot be that of a member: %s", name, strings.Join(wrong, "; "))
	}
	if len(name) > longest {
		return target, usageError("the name has %d characters, and may have %d", len(name), longest)
	}
	var err error
	if target.Labels, err = labels.ConvertSelectorToLabelsMap(t.labels); err != nil {
		return target, usageError("--labels: %w", err)
	}
	if strings.Contains(t.proxy, "@") { // which the hub would refuse, and show
		return target, usageError("--advertise-proxy-url must have no user and no password: a ClusterAccess is no place for credentials")
	}
	if target.Server, err = t.reachable(config.Host); err != nil {
		return target, err
	}
	target.CABundle, err = authority(config, memberSide)
	return target, err
}

// reachable returns the URL that the hub is to use.
func (t *targetFlags) reachable(own string) (string, error) {
	server := own
	if t.server != "" {
		server = t.server
	}
	parsed, err := url.Parse(server)
	if err == nil && parsed.Scheme == "" && t.server == "" {
		parsed, err = url.Parse("https://" + server)
	}
	if err != nil || parsed.Scheme != withTLS || parsed.Hostname() == "" || parsed.User != nil {
		return "", usageError("the member's server must be a URL that begins with https://; say with --advertise-server how the hub reaches it")
	}
	if t.server == "" && loopback(parsed.Hostname()) {
		return "", usageError("your kubeconfig has the member at %s, which is another machine for the hub; say with --advertise-server how the hub reaches it", parsed.Host)
	}
	return strings.TrimRight(parsed.String(), "/"), nil
}

// withTLS is the scheme of servers with TLS.
const withTLS = "https"

// secure reports whether a URL leads to a server with TLS, and has no user.
func secure(server string) bool {
	parsed, err := url.Parse(server)
	return err == nil && parsed.Scheme == withTLS && parsed.Hostname() != "" && parsed.User == nil
}

// readable reports whether others may read what comes from a server. One without TLS on this machine is the end of a tunnel.
func readable(config *rest.Config) bool {
	parsed, _, err := rest.DefaultServerUrlFor(config)
	return err != nil || parsed.Scheme != withTLS && !loopback(parsed.Hostname())
}

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// authority returns the certificates by which a side is known.
func authority(config *rest.Config, side string) ([]byte, error) {
	flag := "--certificate-authority"
	if side == memberSide {
		flag = "--member-certificate-authority"
	}
	if config.Insecure {
		return nil, usageError("your kubeconfig does not check the %s's certificate; name its CA with %s", side, flag)
	}
	bundle := config.CAData
	if len(bundle) == 0 && config.CAFile != "" {
		var err error
		if bundle, err = os.ReadFile(config.CAFile); err != nil {
			return nil, fmt.Errorf("read the %s's CA: %w", side, err)
		}
	}
	if len(bundle) == 0 {
		return nil, nil // the certificates of the system
	}
	if block, _ := pem.Decode(bundle); block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("the %s's CA holds no certificate as PEM", side)
	}
	if bytes.Contains(bundle, []byte("PRIVATE KEY")) { // as the hub would, and it may show it
		return nil, usageError("the %s's CA holds a key, and must hold certificates alone; name them with %s", side, flag)
	}
	return bundle, nil
}

// connectMember is connect for a member, which must be named: otherwise it would be the hub.
func (s *side) connectMember(ctx context.Context) (*reached, error) {
	if *s.flags.Context == "" && *s.flags.KubeConfig == "" && *s.flags.APIServer == "" {
		return nil, usageError("say which cluster is meant with --member-context, or --member-kubeconfig")
	}
	raw, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	named := *s.flags.Context != "" || *s.flags.APIServer != "" || *s.flags.ClusterName != ""
	if err == nil && !named && raw.CurrentContext == "" { // it would be the cluster of the Pod that this is in
		return nil, usageError("the member's kubeconfig has no current context: say which is meant with --member-context")
	}
	return s.connect(ctx)
}

var errSameCluster = errors.New("are the same cluster: the hub; nothing was changed")

// distinct makes sure that the member is another cluster than the hub, and returns which one it is. Both are asked, so it also tells a
// cluster that does not answer.
func distinct(ctx context.Context, hub, member *reached) (identity string, err error) {
	ours, err := hub.identity(ctx)
	if err != nil {
		return "", hubError{err}
	}
	if identity, err = member.identity(ctx); err != nil {
		return "", err
	}
	if ours == identity {
		return "", fmt.Errorf("%s and %s %w", hub.config.Host, member.config.Host, errSameCluster)
	}
	return identity, nil
}

// identity tells which cluster it is: the UID of its namespace kube-system. One that no label may have is none, since a hostile cluster can
// say anything, and the identity is in commands for a shell.
func (r *reached) identity(ctx context.Context) (string, error) {
	system := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	what := system.DeepCopy()
	if err := r.Get(ctx, client.ObjectKeyFromObject(system), system); err != nil {
		return "", r.failed("get", what, err)
	}
	identity := string(system.UID)
	if identity == "" || len(validation.IsValidLabelValue(identity)) > 0 {
		return "", fmt.Errorf("the %s (%s) says of its namespace kube-system what cannot be a UID, so it may be any cluster: %w", r.name, r.config.Host, errOtherCluster)
	}
	return identity, nil
}

// mark returns the mark of a member of this hub.
func (r *reached) mark(ctx context.Context, member string) (mark, error) {
	id, err := r.identity(ctx)
	return newMark(id, markedAs(r.namespace, member)), err
}
