package rights_test

import (
	"context"
	"fmt"
	"log"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// What one set of rules gives, and another one lacks.
func ExampleMissing() {
	var have, want []rights.Right
	for text, to := range map[string]*[]rights.Right{"* configmaps in apps": &have, "list configmaps in apps": &want, "get secrets in apps": &want} {
		r, err := rights.Parse(text)
		if err != nil {
			log.Fatal(err)
		}
		*to = append(*to, r)
	}
	fmt.Println(rights.Missing(have, want))
	// Output: [get secrets in apps]
}

// Rules are taken apart, and put together with others.
func ExampleRules() {
	all := rights.Of("", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"watch", "list"}})
	all = append(all, rights.Right{Verb: "get", Resource: "pods"})
	for _, rule := range rights.Rules(all) {
		fmt.Println(rule.APIGroups, rule.Resources, rule.Verbs)
	}
	// Output: [] [pods] [get list watch]
}

// A program that writes roles says what its user may not give, before it writes anything.
func ExampleLacking() {
	give := func(ctx context.Context, clients kubernetes.Interface, roles []rights.Grant) error {
		want := make([]rights.Right, 0, len(roles))
		for _, g := range roles {
			want = append(want, rights.Of(g.Namespace, g.Rules...)...) // a ClusterRole takes them everywhere, also where it is bound in g.In alone
		}
		lacking, err := rights.Lacking(ctx, clients.AuthorizationV1(), want)
		if err == nil && len(lacking) > 0 {
			err = fmt.Errorf("you may not give %q", lacking)
		}
		return err
	}
	_ = func(ctx context.Context, clients kubernetes.Interface, manifest []*unstructured.Unstructured) error {
		roles, err := rights.Grants(manifest)
		if err != nil {
			return err
		}
		return give(ctx, clients, roles)
	}
}

// A program says when it starts what it may not do, whatever rights it may give.
func ExampleRefused() {
	_ = func(ctx context.Context, clients kubernetes.Interface, needs []rights.Right) error {
		refused, err := rights.Refused(ctx, clients.AuthorizationV1(), needs)
		if err == nil && len(refused) > 0 {
			err = fmt.Errorf("these rights are missing: %q", refused)
		}
		return err
	}
}
