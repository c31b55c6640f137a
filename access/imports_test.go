package access_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// lister is an account of a member that lists pods of its namespace.
const lister = "pod-lister"

// run runs a manager with what is set up, until the test ends.
func (w world) run(t *testing.T, setup func(mgr manager.Manager) error) {
	t.Helper()
	w.runBy(t, w.hub.Config(), setup)
}

// runBy is run with a config of the hub.
func (w world) runBy(t *testing.T, cfg *rest.Config, setup func(mgr manager.Manager) error) {
	t.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: w.hub.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	accesstest.Must(t, err)
	accesstest.Must(t, setup(mgr))
	start(t, mgr)
}

// start starts a manager, and ends it when the test ends.
func start(t *testing.T, mgr manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); accesstest.Must(t, <-ended) })
}

// importQuickly runs the controller of imports, at a pace at which a test can wait.
func (w world) importQuickly(t *testing.T) {
	t.Helper()
	w.run(t, func(mgr manager.Manager) error {
		return access.Imports{Namespace: w.namespace}.SetupAtPace(mgr, 200*time.Millisecond, time.Hour)
	})
}

// export lets the minter of a member make tokens of accounts of the namespace default, and creates the first.
func export(t *testing.T, member *mctest.ControlPlane, to rbacv1.Subject, accounts ...string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: accounts[0]}
	accesstest.Create(t, member, &corev1.ServiceAccount{ObjectMeta: meta})
	for name, rule := range map[string]rbacv1.PolicyRule{
		"exported":  {APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: accounts, Verbs: []string{"create"}},
		"list-pods": {APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	} {
		subject := to
		if name == "list-pods" {
			subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: accounts[0]}
		}
		meta := metav1.ObjectMeta{Namespace: "default", Name: name}
		accesstest.Create(t, member, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}})
		accesstest.Create(t, member, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{subject},
		})
	}
}

func minterSubject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: accesstest.Namespace, Name: accesstest.Minter}
}

// allowImports lets the namespace of the test import accounts of the namespace default, none without any.
func (w world) allowImports(t *testing.T, a *v1alpha1.ClusterAccess, accounts ...string) {
	t.Helper()
	before := a.DeepCopy()
	a.Spec.AllowedImports = nil
	for _, account := range accounts {
		a.Spec.AllowedImports = append(a.Spec.AllowedImports, v1alpha1.AllowedImports{
			Namespaces: []string{w.namespace}, ServiceAccounts: []string{"default/" + account},
		})
	}
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), a, client.MergeFrom(before)))
}

func (w world) newImport(name, cluster, account string) *v1alpha1.ServiceAccountImport {
	return &v1alpha1.ServiceAccountImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: cluster, Namespace: "default", Name: account},
	}
}

// waitForImport waits until the condition Ready of an import has a reason, and returns the import.
func (w world) waitForImport(t *testing.T, name, reason string) *v1alpha1.ServiceAccountImport {
	t.Helper()
	i := &v1alpha1.ServiceAccountImport{}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := w.hub.Client().Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, i); err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == reason && ready.ObservedGeneration == i.Generation, nil
	})
	if err != nil {
		t.Fatalf("%s did not become %s: %+v", name, reason, i.Status)
	}
	ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady)
	if works := reason == v1alpha1.ReasonAsExpected; (ready.Status == metav1.ConditionTrue) != works || (ready.Message == "") != works {
		t.Errorf("%s is %+v", name, ready)
	}
	return i
}

// secretNamed returns a Secret beside the imports, nil if there is none.
func (w world) secretNamed(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	err := w.hub.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	accesstest.Must(t, err)
	return secret
}

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) { return holds(), nil }) != nil {
		t.Fatalf("it did not become so that %s", what)
	}
}

// use returns a client by the kubeconfig of an import's Secret.
func use(t *testing.T, secret *corev1.Secret) client.Client {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[v1alpha1.ImportConfig])
	accesstest.Must(t, err)
	cl, err := client.New(cfg, client.Options{})
	accesstest.Must(t, err)
	return cl
}

func listsPods(t *testing.T, secret *corev1.Secret) error {
	t.Helper()
	return use(t, secret).List(t.Context(), &corev1.PodList{}, client.InNamespace("default"))
}

// wantEvent waits for an event of an import.
func (w world) wantEvent(t *testing.T, name, reason string) {
	t.Helper()
	until(t, fmt.Sprintf("there is an event %s of %s", reason, name), func() bool {
		list := &eventsv1.EventList{}
		accesstest.Must(t, w.hub.Client().List(t.Context(), list, client.InNamespace(w.namespace)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == name && e.Reason == reason && e.Regarding.Kind == v1alpha1.KindServiceAccountImport
		})
	})
}

// wantWhole fails the test unless a Secret has all keys, which fit each other.
func wantWhole(t *testing.T, secret *corev1.Secret, a *v1alpha1.ClusterAccess) {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["config"])
	if err != nil || cfg.BearerToken != string(secret.Data["token"]) || cfg.BearerToken == "" || cfg.Host != string(secret.Data["server"]) ||
		cfg.Host != a.Spec.Server || string(cfg.CAData) != string(secret.Data["ca.crt"]) || string(cfg.CAData) != string(a.Spec.CABundle) ||
		string(secret.Data["namespace"]) != "default" || len(secret.Data) != 5 {
		t.Errorf("the Secret is not whole: the error is %v, and it has %d keys", err, len(secret.Data))
	}
}

// TestAnImportGivesAnAccountOfAnotherCluster is AS-7.2 to 7.4, on API servers that make no tokens of accounts by themselves (7.7).
func TestAnImportGivesAnAccountOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, name := w.mint(t), "cluster2-default-pod-lister"
	member := w.members[0]
	export(t, member, minterSubject(), lister, "comes-later")
	w.allowImports(t, a, lister, "comes-later")
	w.run(t, func(mgr manager.Manager) error { return access.Imports{Namespace: w.namespace}.SetupWithManager(mgr) })
	accesstest.Create(t, w.hub, w.newImport(name, a.Name, lister))

	t.Run("7.2 the Secret, its keys and what they allow", func(t *testing.T) {
		stage.Soon(t, "there is the Secret", func() bool { return w.secretNamed(t, name) != nil })
		i := w.waitForImport(t, name, v1alpha1.ReasonAsExpected)
		secret := w.secretNamed(t, name)
		wantWhole(t, secret, a)
		if !metav1.IsControlledBy(secret, i) || secret.Labels[v1alpha1.ImportLabel] != name || i.Status.Secrets[0].Name != name {
			t.Errorf("the Secret has the owners %v and labels %v, and the status names %v", secret.OwnerReferences, secret.Labels, i.Status.Secrets)
		}
		if err := listsPods(t, secret); err != nil {
			t.Errorf("listing pods: %v", err)
		}
		if err := use(t, secret).List(t.Context(), &corev1.SecretList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
			t.Errorf("listing Secrets: %v, want that it is forbidden", err)
		}
		w.wantEvent(t, name, v1alpha1.ConditionReady)
	})
	t.Run("7.3 the token expires, as the status says", func(t *testing.T) {
		i := w.waitForImport(t, name, v1alpha1.ReasonAsExpected)
		part := strings.Split(string(w.secretNamed(t, name).Data["token"]), ".")[1]
		text, err := base64.RawURLEncoding.DecodeString(part)
		accesstest.Must(t, err)
		var claims struct {
			Issued  int64 `json:"iat"`
			Expires int64 `json:"exp"`
		}
		accesstest.Must(t, json.Unmarshal(text, &claims))
		if life := i.Status.ExpirationTime.Sub(i.Status.RenewTime.Time); claims.Expires-claims.Issued != 3600 || life != time.Hour {
			t.Errorf("it lives for %d seconds, and %s by the status, want an hour", claims.Expires-claims.Issued, life)
		}
	})
	t.Run("7.3 the account is deleted and created again", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: lister}}
		accesstest.Must(t, member.Client().Delete(t.Context(), account.DeepCopy()))
		before := w.secretNamed(t, name)
		accesstest.Must(t, member.Client().Create(t.Context(), account))
		stage.Within(t, 30*time.Second, "there is another token that works", func() bool {
			now := w.secretNamed(t, name)
			return string(now.Data["token"]) != string(before.Data["token"]) && listsPods(t, now) == nil
		})
	})
	t.Run("7.4 an account that does not exist, until it does", func(t *testing.T) {
		accesstest.Create(t, w.hub, w.newImport("early", a.Name, "comes-later"))
		w.waitForImport(t, "early", v1alpha1.ReasonServiceAccountNotFound)
		w.wantEvent(t, "early", v1alpha1.ReasonServiceAccountNotFound)
		if w.secretNamed(t, "early") != nil {
			t.Error("there is a Secret without a token")
		}
		accesstest.Create(t, member, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "comes-later"}})
		stage.Soon(t, "there is the Secret", func() bool { return w.secretNamed(t, "early") != nil })
		w.waitForImport(t, "early", v1alpha1.ReasonAsExpected)
	})
}

// TestAnImportedTokenIsRenewedWithoutItsSecretEverBeingAbsent is AS-7.3, with tokens of 600 seconds.
func TestAnImportedTokenIsRenewedWithoutItsSecretEverBeingAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	cl, err := client.NewWithWatch(w.hub.Config(), client.Options{})
	accesstest.Must(t, err)
	watching, err := cl.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(w.namespace))
	accesstest.Must(t, err)
	defer watching.Stop()
	w.run(t, func(mgr manager.Manager) error { // five seconds: 595 are left
		return access.Imports{Namespace: w.namespace}.SetupAtPace(mgr, time.Second, 5*time.Second)
	})
	i := w.newImport("short", a.Name, lister)
	i.Spec.ExpirationSeconds = 600
	accesstest.Create(t, w.hub, i)
	tokens := map[string]bool{}
	for len(tokens) < 3 {
		e := <-watching.ResultChan()
		secret, ok := e.Object.(*corev1.Secret)
		if !ok || e.Type == watch.Deleted {
			t.Fatalf("the watch says %s of a %T", e.Type, e.Object)
		}
		if secret.Name == "short" {
			wantWhole(t, secret, a)
			tokens[string(secret.Data["token"])] = true
		}
	}
	for token := range tokens {
		secret := w.secretNamed(t, "short")
		secret.Data["config"] = []byte(strings.ReplaceAll(string(secret.Data["config"]), string(secret.Data["token"]), token))
		if err := listsPods(t, secret); err != nil {
			t.Errorf("a token that was replaced does not work until it expires: %v", err)
		}
	}
}

// What the status says follows the spec also while no token is made for it.
func TestALifetimeThatChangedDuringAPauseHoldsAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	w.importQuickly(t)
	i := w.newImport("changed", a.Name, lister)
	accesstest.Create(t, w.hub, i)
	w.waitForImport(t, i.Name, v1alpha1.ReasonAsExpected)
	pause := func(paused bool) {
		before := a.DeepCopy()
		a.Spec.Paused = paused
		accesstest.Must(t, w.hub.Client().Patch(t.Context(), a, client.MergeFrom(before)))
	}
	pause(true)
	i = w.waitForImport(t, i.Name, v1alpha1.ReasonPaused)
	before := i.DeepCopy()
	i.Spec.ExpirationSeconds = 600
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), i, client.MergeFrom(before)))
	w.waitForImport(t, i.Name, v1alpha1.ReasonPaused)
	pause(false)
	i = w.waitForImport(t, i.Name, v1alpha1.ReasonAsExpected)
	if life := i.Status.ExpirationTime.Sub(i.Status.RenewTime.Time); life != 10*time.Minute {
		t.Errorf("the token lives for %s after the pause, want ten minutes", life)
	}
}
