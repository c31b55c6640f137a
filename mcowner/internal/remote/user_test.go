package remote

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
	if !w.IsOfOneUser(of("team-a"), of("org-a")) {
		t.Error("two owners of one user are taken for those of two")
	}
}
