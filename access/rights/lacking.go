package rights

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// reviewsAtOnce is how many questions are asked side by side.
const reviewsAtOnce = 8

// Refused asks an API server which of the rights the caller does not have. They are returned sorted, each once. Nothing is written.
//
// An error says that the server could not be asked, and nothing about the rights.
func Refused(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, want []Right) ([]Right, error) {
	var not []Right
	byNamespace := map[string][]Right{}
	for _, r := range want {
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		here, err := refusedIn(ctx, reviews, namespace, sorted(byNamespace[namespace]))
		if err != nil {
			return nil, fmt.Errorf("asking what the caller may do: %w", err)
		}
		not = append(not, here...)
	}
	return not, nil
}

// Lacking is [Refused] for a caller that wants to give the rights to others: it returns those that it may not give.
//
// As the API server does when roles are written and bound, it accepts callers that lack rights if they may "escalate" and "bind"
// roles: in the namespace of the right, or ClusterRoles if it has none. Writing a ClusterRole takes its rights without a namespace,
// wherever it is bound.
func Lacking(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, want []Right) ([]Right, error) {
	not, err := Refused(ctx, reviews, want)
	if err != nil {
		return nil, err
	}
	givesAny := map[string]bool{}
	for _, r := range not {
		if _, asked := givesAny[r.Namespace]; asked {
			continue
		}
		if givesAny[r.Namespace], err = mayEscalate(ctx, reviews, r.Namespace); err != nil {
			return nil, fmt.Errorf("asking what the caller may do: %w", err)
		}
	}
	return slices.DeleteFunc(not, func(r Right) bool { return givesAny[r.Namespace] }), nil
}

// mayEscalate reports whether the caller may give rights that it does not have, in a namespace or in all.
func mayEscalate(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, namespace string) (bool, error) {
	roles := "clusterroles"
	if namespace != "" {
		roles = "roles"
	}
	may := Right{Verb: "escalate", Group: rbacv1.GroupName, Resource: roles, Namespace: namespace}
	bind := may
	bind.Verb = "bind"
	not, err := refused(ctx, reviews, []Right{may, bind})
	return len(not) == 0, err
}

// refusedIn is Refused for rights of one namespace, or of none. One question tells most of what a caller may do in a namespace; the
// others ask about one right each.
func refusedIn(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, namespace string, want []Right) ([]Right, error) {
	if namespace != "" {
		have, err := held(ctx, reviews, namespace)
		if err != nil {
			return nil, err
		}
		want = slices.DeleteFunc(want, func(r Right) bool {
			covers, _ := validation.Covers(have, []rbacv1.PolicyRule{r.rule()})
			return covers
		})
	}
	return refused(ctx, reviews, want)
}

// held returns what the caller may do in a namespace, as far as one answer tells it. The rules are not taken apart: those of a hostile server
// may give more rights than there is memory for.
func held(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, namespace string) ([]rbacv1.PolicyRule, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	answer, err := reviews.SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	rules := make([]rbacv1.PolicyRule, len(answer.Status.ResourceRules))
	for i, r := range answer.Status.ResourceRules {
		rules[i] = rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}
	}
	return rules, nil
}

// refused asks about each right by itself.
func refused(ctx context.Context, reviews authorizationclient.AuthorizationV1Interface, want []Right) ([]Right, error) {
	allowed := make([]bool, len(want))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, r := range want {
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: r.access()}
			answer, err := reviews.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
			allowed[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var not []Right
	for i, r := range want {
		if !allowed[i] {
			not = append(not, r)
		}
	}
	return not, nil
}

func (r Right) access() authorizationv1.SelfSubjectAccessReviewSpec {
	if r.URL != "" {
		return authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.URL}}
	}
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: subresource, Name: r.Name, Namespace: r.Namespace,
	}}
}
