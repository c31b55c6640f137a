package mctest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// grantTimeout bounds the wait for rights to hold, which takes milliseconds.
const grantTimeout = 30 * time.Second

// Kubeconfig returns a kubeconfig file with the server and the credentials of config, which it holds by value: it names
// no other files.
func Kubeconfig(config *rest.Config) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("reading the certificates of a config: %w", err)
	}
	const name = "mctest"
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			TLSServerName:            config.ServerName,
			InsecureSkipTLSVerify:    config.Insecure,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
			TokenFile:             config.BearerTokenFile,
			Username:              config.Username,
			Password:              config.Password,
			Impersonate:           config.Impersonate.UserName,
			ImpersonateGroups:     config.Impersonate.Groups,
			Exec:                  config.ExecProvider,
		}},
	})
}

// AddUser returns the config of a user with a client certificate and the given rights in the whole cluster.
// Without rules, the user has those of system:authenticated alone. They hold when it returns. Adding a user again replaces
// the rights.
func (cp *ControlPlane) AddUser(tb testing.TB, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	tb.Helper()
	config, err := cp.server.addUser(name)
	must(tb, err)
	must(tb, cp.grant(tb.Context(), name, rules))
	return config
}

// addUser issues a certificate.
func (s *server) addUser(name string) (*rest.Config, error) {
	s.addingUser.Lock()
	defer s.addingUser.Unlock()
	user, err := s.env.AddUser(envtest.User{Name: name}, &rest.Config{QPS: s.config.QPS, Burst: s.config.Burst})
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// grant gives the user these rights in the whole cluster.
func (cp *ControlPlane) grant(ctx context.Context, user string, rules []rbacv1.PolicyRule) error {
	// The API server learns of rights by a watch. It has these, and no longer those of before, once it knows this mark.
	mark := "/mctest/" + string(uuid.NewUUID())
	meta := metav1.ObjectMeta{Name: "mctest:" + user}
	role := &rbacv1.ClusterRole{ObjectMeta: meta}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta}
	cl, err := client.New(cp.server.config, client.Options{}) // the scheme of the fleet may lack these types
	if err != nil {
		return err
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, cl, role, func() error {
		role.Rules = append(slices.Clone(rules), rbacv1.PolicyRule{Verbs: []string{get}, NonResourceURLs: []string{mark}})
		return nil
	}); err != nil {
		return fmt.Errorf("writing the role of user %s in %s: %w", user, cp.Name, err)
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, cl, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
		return nil
	}); err != nil {
		return fmt.Errorf("binding the role of user %s in %s: %w", user, cp.Name, err)
	}
	return wait.PollUntilContextTimeout(ctx, lookEvery, grantTimeout, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: mark, Verb: get},
		}}
		err := cl.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// CreateNamespace creates a namespace of a unique name and returns the name.
func (cp *ControlPlane) CreateNamespace(tb testing.TB) string {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(cp.server.config)
	must(tb, err)
	ns, err := clients.CoreV1().Namespaces().Create(tb.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	must(tb, err)
	return ns.Name
}
