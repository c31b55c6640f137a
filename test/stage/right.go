package stage

import (
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// right is what a request asks for, or what a rule allows: in all namespaces and for all names where these are empty.
type right struct{ verb, group, resource, namespace, name string }

func (r right) String() string {
	text := r.verb + " " + schema.GroupResource{Group: r.group, Resource: r.resource}.String()
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	return text
}

// covers reports whether a rule is for what a request asks for.
func (r right) covers(asked right) bool {
	return r.verb == asked.verb && r.group == asked.group && r.resource == asked.resource &&
		(r.namespace == "" || r.namespace == asked.namespace) && (r.name == "" || r.name == asked.name)
}

// tooMuch says what is too much about a rule for what was asked for, and nothing if all of it is needed. What is used in
// one namespace need not be given in all.
func (r right) tooMuch(asked []right) string {
	if r.isByChance() {
		return ""
	}
	namespaces := map[string]bool{}
	for _, one := range asked {
		if r.covers(one) {
			namespaces[one.namespace] = true
		}
	}
	switch {
	case len(namespaces) == 0:
		return r.String() + ": nobody has asked for it"
	case len(namespaces) > 1 || r.namespace != "" || namespaces[""]:
		return ""
	}
	for only := range namespaces {
		return r.String() + ": it is given in the whole cluster, and was asked for in the namespace " + only + " alone"
	}
	return ""
}

// patch is the verb of what changes parts of an object, be it by applying.
const patch = "patch"

// isByChance reports whether it depends on timing whether the right is used: an event that repeats is patched.
func (r right) isByChance() bool { return r.verb == patch && r.resource == "events" }

// holds asks the API server whether an account has the right.
func (r right) holds(t *testing.T, cp *mctest.ControlPlane, account client.ObjectKey) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace, Name: r.name,
		},
	}}
	if err := cp.Client().Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// rightOf returns what a request asks for. It is false for what everybody may ask for: what the server offers, and how it
// is.
func rightOf(req *http.Request) (right, bool) {
	var r right
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.group, parts = parts[1], parts[3:]
	default:
		return r, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.resource += "/" + parts[2]
	}
	r.verb = verbOf(req, r.name)
	return r, true
}

func verbOf(req *http.Request, name string) string {
	switch {
	case req.Method != http.MethodGet:
		return map[string]string{
			http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
		}[req.Method]
	case name != "":
		return "get"
	case req.URL.Query().Get("watch") != "":
		return "watch"
	}
	return "list"
}
