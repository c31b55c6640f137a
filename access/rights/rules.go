package rights

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Rules returns the rules of a role that gives these rights, wherever that role is: their namespaces do not count. Rights that
// differ in one respect alone are in one rule: in verbs, else in names, else in resources of a group. The order is that in which
// people write rules, whatever the order of the rights.
func Rules(all []Right) []rbacv1.PolicyRule {
	all = slices.Clone(all)
	for i := range all {
		all[i].Namespace = ""
	}
	var rules []rbacv1.PolicyRule
	for _, r := range sorted(all) {
		rules = append(rules, r.rule())
	}
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs })
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames })
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Resources })
	return join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.NonResourceURLs })
}

// join joins rules that differ in one list alone, if each of them has something in it.
func join(rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	for _, rule := range rules {
		i := slices.IndexFunc(joined, func(before rbacv1.PolicyRule) bool {
			a, b := before, rule
			isFull := len(*list(&a)) > 0 && len(*list(&b)) > 0
			*list(&a), *list(&b) = nil, nil
			return isFull && same(a, b)
		})
		if i < 0 {
			joined = append(joined, rule)
			continue
		}
		into := list(&joined[i])
		*into = append(slices.Clone(*into), *list(&rule)...)
	}
	return joined
}

func same(a, b rbacv1.PolicyRule) bool {
	return slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.APIGroups, b.APIGroups) && slices.Equal(a.Resources, b.Resources) &&
		slices.Equal(a.ResourceNames, b.ResourceNames) && slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}
