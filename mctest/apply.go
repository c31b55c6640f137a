package mctest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// prepare makes the account, with its rights, and returns once they hold.
func (a *Account) prepare(ctx context.Context) error {
	cl, err := client.New(a.cp.server.config, client.Options{}) // the scheme of the fleet may lack these types
	if err != nil {
		return err
	}
	if err := a.apply(ctx, cl); err != nil {
		return err
	}
	account, err := a.account(ctx, cl)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{}
	if err := cl.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("asking for a token of the ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	admin := a.cp.server.config
	a.uid = account.UID
	a.config = rest.AnonymousClientConfig(admin)
	a.config.QPS, a.config.Burst = admin.QPS, admin.Burst
	a.config.BearerToken = request.Status.Token
	return a.awaitRights(ctx, cl, account)
}

// apply creates what is in the manifest, and the namespaces for it, where they are not there yet.
func (a *Account) apply(ctx context.Context, cl client.Client) error {
	for _, obj := range a.rights.file.Objects() {
		if obj.GetKind() != "Namespace" && obj.GetNamespace() != "" {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: obj.GetNamespace()}}
			if err := cl.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating the namespace %s: %w", namespace.Name, err)
			}
		}
		err := cl.Create(ctx, obj.DeepCopy())
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// account returns the ServiceAccount of the manifest or, if it has none, one of the test's own that the roles are bound to.
func (a *Account) account(ctx context.Context, cl client.Client) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "mctest-"}}
	described, err := a.rights.file.Account()
	if err != nil {
		return nil, err
	}
	if described != nil {
		if err := cl.Get(ctx, client.ObjectKeyFromObject(described), account); err != nil {
			return nil, err
		}
		if err := a.cp.server.claim(account.Namespace+"/"+account.Name, a.rights.path); err != nil {
			return nil, err
		}
	} else if err := cl.Create(ctx, account); err != nil {
		return nil, fmt.Errorf("creating a ServiceAccount: %w", err)
	}
	grants := a.rights.file.Grants()
	if described != nil {
		grants = nil // the manifest binds them
	}
	if updatesRights() {
		grants = append(grants, rights.Grant{Kind: "ClusterRole", Name: "cluster-admin", In: []string{""}})
	}
	for _, g := range grants {
		if err := bindRole(ctx, cl, g, account); err != nil {
			return nil, fmt.Errorf("binding the %s %s: %w", g.Kind, g.Name, err)
		}
	}
	return account, nil
}

// claim makes sure that what an account asks for is that of one manifest.
func (s *server) claim(account, path string) error {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	if before, ok := s.claimed[account]; ok && before != path {
		return fmt.Errorf("the ServiceAccount %s has the rights of %s here too, so it could not be told what each of them has to give", account, before)
	}
	if s.claimed == nil {
		s.claimed = map[string]string{}
	}
	s.claimed[account] = path
	return nil
}

// bindRole binds a role to an account, where it holds.
func bindRole(ctx context.Context, cl client.Client, g rights.Grant, account *corev1.ServiceAccount) error {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: g.Kind, Name: g.Name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
	var err error
	for _, namespace := range g.In {
		meta := metav1.ObjectMeta{GenerateName: "mctest-", Namespace: namespace}
		if namespace == "" {
			err = errors.Join(err, cl.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}))
		} else {
			err = errors.Join(err, cl.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}))
		}
	}
	return err
}

// awaitRights waits until the API server has heard of the rights, which it does by watches.
func (a *Account) awaitRights(ctx context.Context, cl client.Client, account *corev1.ServiceAccount) error {
	var left []rights.Right
	for _, g := range a.rights.file.Grants() {
		left = append(left, g.Rights()...)
	}
	if updatesRights() {
		left = []rights.Right{{Verb: rights.All, Group: rights.All, Resource: rights.All}}
	}
	// Each request may take its time: a client that is to be slower than grantTimeout refuses to send it at once.
	err := wait.PollUntilContextTimeout(ctx, lookEvery, grantTimeout, true, func(context.Context) (bool, error) {
		for len(left) > 0 {
			review := &authorizationv1.SubjectAccessReview{Spec: accessOf(account, left[0])}
			if err := cl.Create(ctx, review); err != nil || !review.Status.Allowed {
				return false, err
			}
			left = left[1:]
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the manifest gives %q, but its bindings do not give it to the ServiceAccount %s/%s", left[0], account.Namespace, account.Name)
	}
	return err
}

func accessOf(account *corev1.ServiceAccount, r rights.Right) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
	}
	if r.URL != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.URL}
		return spec
	}
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: subresource, Name: r.Name, Namespace: r.Namespace,
	}
	return spec
}
