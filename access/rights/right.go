package rights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// All is the verb, group or resource that stands for every one.
const All = "*"

// longest is how many bytes of a right are shown.
const longest = 1024

// Right is what one request asks for, or the smallest part of what a rule gives. It can be compared with ==.
type Right struct {
	// Verb is "get", "list" and so on, or [All].
	Verb string
	// Group and Resource are those of the API. A subresource follows a slash: "pods/status".
	Group, Resource string
	// Name is that of the object. Empty: all names.
	Name string
	// Namespace is where the object is. Empty: in all namespaces, or in none.
	Namespace string
	// URL is the path of what is no resource, such as "/metrics". What is above is empty then, but for the verb.
	URL string
}

// String returns the right as [Parse] reads it, such as "get namespaces kube-system", "list deployments.apps in default",
// "patch foos.example.com/status" and "get /metrics". It is fit to be shown, whatever a manifest of a stranger says.
func (r Right) String() string {
	text := r.Verb + " " + r.URL
	if r.URL == "" {
		resource, subresource, isSub := strings.Cut(r.Resource, "/")
		text = r.Verb + " " + schema.GroupResource{Group: r.Group, Resource: resource}.String()
		if isSub {
			text += "/" + subresource
		}
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return oneline.Text(text, longest)
}

// Parse reads what [Right.String] returns: a verb, a resource or a path, a name if it is about one, and "in" with a
// namespace if it is about one.
func Parse(text string) (Right, error) {
	var r Right
	words := strings.Fields(text)
	if n := len(words); n > 3 && words[n-2] == "in" {
		r.Namespace, words = words[n-1], words[:n-2]
	}
	if len(words) == 3 {
		r.Name, words = words[2], words[:2]
	}
	if len(words) != 2 {
		return Right{}, fmt.Errorf(`reading the right %q: it must be as "get secrets", "list deployments.apps in default" or "get namespaces kube-system"`, text)
	}
	r.Verb = words[0]
	if strings.HasPrefix(words[1], "/") {
		r.URL = words[1]
		if r.Name != "" || r.Namespace != "" {
			return Right{}, fmt.Errorf("reading the right %q: a path has neither a name nor a namespace", text)
		}
		return r, nil
	}
	resource, subresource, isSub := strings.Cut(words[1], "/")
	of := schema.ParseGroupResource(resource)
	r.Group, r.Resource = of.Group, of.Resource
	if isSub {
		r.Resource += "/" + subresource
	}
	if of.Resource == "" || isSub && subresource == "" {
		return Right{}, fmt.Errorf("reading the right %q: there is no resource in it", text)
	}
	return r, nil
}

// Covers reports whether whoever has the right has the other one too.
func (r Right) Covers(other Right) bool {
	if r.Namespace != "" && r.Namespace != other.Namespace || r.Verb != All && r.Verb != other.Verb { // the second is quicker told here
		return false
	}
	covers, _ := validation.Covers([]rbacv1.PolicyRule{r.rule()}, []rbacv1.PolicyRule{other.rule()})
	return covers
}

// rule is a rule that gives the right alone.
func (r Right) rule() rbacv1.PolicyRule {
	if r.URL != "" {
		return rbacv1.PolicyRule{Verbs: []string{r.Verb}, NonResourceURLs: []string{r.URL}}
	}
	rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}
	if r.Name != "" {
		rule.ResourceNames = []string{r.Name}
	}
	return rule
}

// Of takes rules apart that hold in a namespace, or everywhere if it is empty. Each right is returned once, sorted.
func Of(namespace string, rules ...rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		for _, one := range validation.BreakdownRule(rule) {
			r := Right{Verb: one.Verbs[0], Namespace: namespace}
			if len(one.NonResourceURLs) > 0 {
				r.URL = one.NonResourceURLs[0]
			} else {
				r.Group, r.Resource = one.APIGroups[0], one.Resources[0]
			}
			if len(one.ResourceNames) > 0 {
				r.Name = one.ResourceNames[0]
			}
			all = append(all, r)
		}
	}
	return sorted(all)
}

// Missing returns those of want that nothing of have covers, each once, sorted.
func Missing(have, want []Right) []Right {
	return sorted(slices.DeleteFunc(slices.Clone(want), func(w Right) bool {
		return slices.ContainsFunc(have, func(h Right) bool { return h.Covers(w) })
	}))
}

// sorted sorts rights, and leaves each in it once.
func sorted(all []Right) []Right {
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// compare orders rights as rules are written: by namespace, then by what they are about, then by verb.
func compare(a, b Right) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.URL, b.URL),
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), compareVerbs(a.Verb, b.Verb),
	)
}

// verbs in the order in which people write them. Others follow.
var verbs = []string{All, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func compareVerbs(a, b string) int {
	place := func(verb string) int {
		if i := slices.Index(verbs, verb); i >= 0 {
			return i
		}
		return len(verbs)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}
