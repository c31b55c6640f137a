package dependents_test

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// withSecrets is spread with a Secret in the one cluster that the owner says. Its fleet is its own: what other tests have left in the members
// would be a reason to watch Secrets.
func (w *world) withSecrets(results *latest) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Fleet = w.ns
	r.Kinds = append(r.Kinds, &corev1.Secret{})
	r.Status = results.note
	copies := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := copies(ctx, owner, target)
		if owner.Data["secret"] == string(target.Cluster) {
			all = append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)}})
		}
		return all, err
	}
	dependents.Hasten(r, time.Second)
	return r
}

// joinAs adds a member to the fleet whose credentials have rights to these resources, and looks out for watches of Secrets there.
func (p *process) joinAs(cp *mctest.ControlPlane, resources ...string) *lookout {
	p.t.Helper()
	cfg, at := lookingOut(cp.AddUser(p.t, "of-kinds", rightsTo(resources...)...), "secrets")
	if err := p.members.Set(fleet.Member{
		Name: fleet.ClusterName(cp.Name), Config: p.power.feed(cfg), Labels: map[string]string{"name": cp.Name},
	}); err != nil {
		p.t.Fatal(err)
	}
	return at
}

func rightsTo(resources ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	}
}

// TestAKindIsWatchedInTheClustersInWhichAnOwnerHasIt, and not in the others. Once the owner has none anywhere, it is as if it never had:
// a right that is taken away then is not missed.
func TestAKindIsWatchedInTheClustersInWhichAnOwnerHasIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // they join below
	var results latest
	p := w.run(w.withSecrets(&results))
	atOne, atTwo := p.joinAs(one, "configmaps", "secrets"), p.joinAs(two, "configmaps", "secrets")
	owner := w.owner("a", one.Name, two.Name)
	owner.Data["secret"] = one.Name
	w.create(w.Local, owner)
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	hasSecret := func() bool {
		return w.isThere(one, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a")}})
	}
	eventually(t, "the Secret is there", hasSecret)
	eventually(t, "Secrets are watched where there is one", func() bool { return atOne.open.Load() == 1 })
	if n := atTwo.begun.Load(); n > 0 {
		t.Errorf("%d watches of Secrets were begun where there are to be none", n)
	}
	p.stop()

	p = w.run(w.withSecrets(&results))
	atOne, atTwo = p.joinAs(one, "configmaps", "secrets"), p.joinAs(two, "configmaps", "secrets")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.says(one, copyOf("a"), "2")
	w.says(two, copyOf("a"), "2")
	eventually(t, "after a restart, Secrets are watched where there is one", func() bool { return atOne.open.Load() == 1 })
	if n := atTwo.begun.Load(); n > 0 {
		t.Errorf("%d watches of Secrets were begun where there are none", n)
	}

	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["secret"] = "" })
	eventually(t, "the Secret is gone", func() bool { return !hasSecret() })
	eventually(t, "Secrets are not watched any more", func() bool { return atOne.open.Load() == 0 })
	if n := atTwo.begun.Load(); n > 0 {
		t.Errorf("%d watches of Secrets were begun where there were none", n)
	}
	eventually(t, "the owner has not noted Secrets", func() bool { return !w.hasNoted(w.Local, "a", "Secret") && w.hasNoted(w.Local, "a", "ConfigMap") })

	for _, cp := range []*mctest.ControlPlane{one, two} {
		cp.AddUser(t, "of-kinds", rightsTo("configmaps")...)
	}
	follows := func(value string) {
		t.Helper()
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		for _, cp := range []*mctest.ControlPlane{one, two} {
			w.says(cp, copyOf("a"), value)
			eventually(t, "nothing is in the way", func() bool { return results.of("a", cp).Err == nil })
		}
	}
	follows("3")
	p.stop()
	p = w.run(w.withSecrets(&results))
	p.joinAs(one, "configmaps")
	p.joinAs(two, "configmaps")
	follows("4")
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// TestAKindIsNotWatchedToFindWhatIsLeft in a cluster that is no target any more, as what the owner had there goes at last.
func TestAKindIsNotWatchedToFindWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // they join below
	p := w.run(w.withSecrets(&latest{}))
	p.joinAs(one, "configmaps", "secrets")
	atTwo := p.joinAs(two, "configmaps", "secrets")
	owner := w.owner("a", one.Name, two.Name)
	owner.Data["secret"] = one.Name
	w.create(w.Local, owner)
	w.isCopied(two, "a")
	eventually(t, "Secrets are noted", func() bool { return w.hasNoted(w.Local, "a", "Secret") })
	eventually(t, "it is known that there is none", p.isAtRest) // else they are watched, as one may have lost its labels
	w.change(two, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/held"} })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = one.Name })
	eventually(t, "the owner says that it has nothing there", func() bool {
		return p.isAtRest() && !strings.Contains(placedIn(w.mustGet(w.Local, "a")), two.Name)
	})
	var asked atomic.Bool
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.URL.Host == hostOf(two) && strings.HasSuffix(req.URL.Path, "/secrets") && req.URL.Query().Has("labelSelector") {
			asked.Store(true)
		}
		return nil
	}
	p.power.tap.Store(&tap)
	w.change(two, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	eventually(t, "it was looked whether Secrets are left", func() bool { return asked.Load() || atTwo.begun.Load() > 0 })
	eventually(t, "all is at rest", p.isAtRest)
	if n := atTwo.begun.Load(); n > 0 {
		t.Errorf("%d watches of Secrets were begun where there were none", n)
	}
}

// TestAClusterIsNotAskedForKindsThatAreDesiredThere: these are watched in any case. Of the others it is asked once.
func TestAClusterIsNotAskedForKindsThatAreDesiredThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var results latest
	start := func() (*process, *requests) {
		asked := &requests{}
		tap := func(req *http.Request) (answered func()) {
			if req.URL.Query().Get("limit") == "1" {
				asked.mu.Lock()
				defer asked.mu.Unlock()
				asked.all = append(asked.all, req.URL.Host+" "+path.Base(req.URL.Path))
			}
			return nil
		}
		members := w.Members
		w.Members = nil
		p := w.run(w.withSecrets(&results))
		p.power.tap.Store(&tap)
		w.Members = members
		for _, cp := range members {
			p.add(cp, cp.Config())
		}
		return p, asked
	}
	p, _ := start()
	for _, name := range []string{"a", "b"} {
		owner := w.owner(name, one.Name, two.Name)
		owner.Data["secret"] = one.Name
		w.create(w.Local, owner)
	}
	everywhere := func(value string) {
		t.Helper()
		for _, cp := range w.Members {
			w.says(cp, copyOf("a"), value)
			w.says(cp, copyOf("b"), value)
		}
	}
	everywhere("1")
	eventually(t, "both have noted Secrets", func() bool { return w.hasNoted(w.Local, "a", "Secret") && w.hasNoted(w.Local, "b", "Secret") })
	p.stop()

	_, asked := start()
	for _, name := range []string{"a", "b"} {
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	}
	everywhere("2")
	want := []string{hostOf(two) + " secrets"}
	if got := asked.sorted(); !slices.Equal(slices.Compact(got), want) {
		t.Errorf("it was asked whether there are %q, want %q", got, want)
	}
}

// TestAKindThatIsNotDesiredAnyMoreGoesAfterARestart: it is not known after a restart where an owner has what, so all that it has noted is
// looked for, and what is not desired any more goes.
func TestAKindThatIsNotDesiredAnyMoreGoesAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var results latest
	p := w.run(w.withSecrets(&results))
	owner := w.owner("a", one.Name, two.Name)
	owner.Data["secret"] = one.Name
	w.create(w.Local, owner)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a")}}
	eventually(t, "the Secret is there", func() bool { return w.isThere(one, secret.DeepCopy()) })
	p.stop()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["secret"] = two.Name })
	w.run(w.withSecrets(&results))
	eventually(t, "the Secret has moved", func() bool { return w.isThere(two, secret.DeepCopy()) && !w.isThere(one, secret.DeepCopy()) })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "nothing is left", func() bool { return !w.isThere(two, secret.DeepCopy()) })
}

// TestAnOwnerGoesOnceAKindThatMayNotBeListedIsTakenOut of what is noted on it, as nothing is left, also while the program runs.
func TestAnOwnerGoesOnceAKindThatMayNotBeListedIsTakenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil // it joins below
	var results latest
	p := w.run(w.withSecrets(&results))
	p.joinAs(one, "configmaps", "secrets")
	owner := w.owner("a", one.Name)
	owner.Data["secret"] = one.Name
	w.create(w.Local, owner)
	secret := &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf("a"))}
	eventually(t, "the Secret is there", func() bool { return w.isThere(one, secret.DeepCopy()) })
	one.AddUser(t, "of-kinds", rightsTo("configmaps")...)
	if err := one.Client().Delete(t.Context(), secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	isForbidden := func() bool { return apierrors.IsForbidden(results.of("a", one).Err) }
	eventually(t, "the Secret is not created anew", isForbidden)
	w.remove(w.Local, "a")
	w.isGone(one, copyOf("a"))
	eventually(t, "the owner waits", isForbidden)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		cm.Annotations[controller+"."+w.ns+".fleet-runtime.dev/kinds"] = "ConfigMap.v1."
	})
	w.isGone(w.Local, "a")
}

// hasNoted reports whether an owner has noted a kind.
func (w *world) hasNoted(cp *mctest.ControlPlane, name, kind string) bool {
	w.t.Helper()
	for key, kinds := range w.mustGet(cp, name).Annotations {
		if strings.HasPrefix(key, controller+".") && strings.HasSuffix(key, ".fleet-runtime.dev/kinds") {
			return strings.Contains(kinds, kind+".")
		}
	}
	return false
}
