package remote

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAPanicOfUserIsItsError, and the owner for which it panics has the user of no other one.
func TestAPanicOfUserIsItsError(t *testing.T) {
	t.Parallel()
	w := Writers{User: func(owner mcreconcile.Request) string { return strings.Split(owner.Namespace, "-")[1] }}
	of := func(namespace string) mcreconcile.Request {
		var req mcreconcile.Request
		req.NamespacedName = types.NamespacedName{Namespace: namespace, Name: "a"}
		return req
	}
	at := Session{ID: mcowner.ClusterID{Name: "east"}}
	_, err := w.At(log.IntoContext(t.Context(), logr.Discard()), at, of("forged"))
	if err == nil || !strings.Contains(err.Error(), "forged/a") || !strings.Contains(err.Error(), `"east"`) {
		t.Errorf("the error is %v", err)
	}
	if w.IsOfOneUser(of("forged"), of("team-a")) || w.IsOfOneUser(of("team-a"), of("forged")) || w.IsOfOneUser(of("forged"), of("forged")) {
		t.Error("an owner without a user has that of another")
	}
}

// TestWhichOwnersAreOfOneUser: those of one cluster for which User says the same. A user of another cluster that has the name is another one.
func TestWhichOwnersAreOfOneUser(t *testing.T) {
	t.Parallel()
	of := func(cluster mcreconcile.ClusterName, namespace, name string) mcreconcile.Request {
		return mcreconcile.Request{ClusterName: cluster, Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
	}
	byNamespace := func(owner mcreconcile.Request) string { return owner.Namespace }
	for name, tc := range map[string]struct {
		user       func(mcreconcile.Request) string
		one, other mcreconcile.Request
		want       bool
	}{
		"nobody is impersonated":                 {nil, of("east", "a", "x"), of("west", "b", "y"), true},
		"one user":                               {byNamespace, of("east", "a", "x"), of("east", "a", "y"), true},
		"one user of several namespaces":         {func(mcreconcile.Request) string { return "all" }, of("east", "a", "x"), of("east", "b", "x"), true},
		"two users of one cluster":               {byNamespace, of("east", "a", "x"), of("east", "b", "x"), false},
		"two users of the local cluster":         {byNamespace, of("", "a", "x"), of("", "b", "x"), false},
		"the user's name in two clusters":        {byNamespace, of("east", "a", "x"), of("west", "a", "x"), false},
		"the user's name, and the local cluster": {byNamespace, of("", "a", "x"), of("west", "a", "x"), false},
		"two users of two clusters":              {byNamespace, of("east", "a", "x"), of("west", "b", "x"), false},
	} {
		w := Writers{User: tc.user}
		if one, other := w.IsOfOneUser(tc.one, tc.other), w.IsOfOneUser(tc.other, tc.one); one != tc.want || other != tc.want {
			t.Errorf("%s: %s and %s are of one user: %t, and %t the other way round, want %t", name, tc.one, tc.other, one, other, tc.want)
		}
	}
}
