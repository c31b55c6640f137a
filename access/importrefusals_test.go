package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestAnImportSaysWhyThereIsNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	long := strings.Repeat("n", 253)
	export(t, w.members[0], minterSubject(), lister, "nobody", long, "granted")
	accesstest.Create(t, w.members[0], &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "granted"}})
	accesstest.Create(t, w.members[0], &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: long}})
	w.allowImports(t, a, lister, "nobody", "no-right", long)
	w.create(t, "paused", a, func(s *v1alpha1.ClusterAccessSpec) { s.Paused = true })
	w.create(t, "no-secret", a, func(s *v1alpha1.ClusterAccessSpec) { s.Minter.SecretName = "none" })
	w.create(t, long, a, func(*v1alpha1.ClusterAccessSpec) {})
	w.create(t, "elsewhere", a, func(s *v1alpha1.ClusterAccessSpec) { s.AllowedImports[0].Namespaces = []string{"elsewhere"} })
	w.create(t, "minting", a, func(s *v1alpha1.ClusterAccessSpec) {
		s.AllowedImports[0].ServiceAccounts = []string{accesstest.Namespace + "/" + accesstest.Minter}
	})
	minter := w.newImport("minter", "minting", accesstest.Minter)
	minter.Spec.Namespace = accesstest.Namespace
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "taken"}, Data: map[string][]byte{"mine": {1}}}
	accesstest.Create(t, w.hub, foreign)
	cases := map[string]struct {
		i      *v1alpha1.ServiceAccountImport
		reason string
	}{
		"works":       {w.newImport("works", a.Name, lister), v1alpha1.ReasonAsExpected},
		"long":        {w.newImport(strings.Repeat("i", 253), long, long), v1alpha1.ReasonAsExpected},
		"unknown":     {w.newImport("unknown", "nope.x", lister), v1alpha1.ReasonClusterNotFound},
		"two names":   {w.newImport("two-names", w.namespace+"/"+a.Name, lister), v1alpha1.ReasonClusterNotFound},
		"not allowed": {w.newImport("not-allowed", a.Name, "secret-lister"), v1alpha1.ReasonNotAllowed},
		"granted":     {w.newImport("granted", a.Name, "granted"), v1alpha1.ReasonNotAllowed}, // by the member, and not by the hub
		"elsewhere":   {w.newImport("elsewhere", "elsewhere", lister), v1alpha1.ReasonNotAllowed},
		"the minter":  {minter, v1alpha1.ReasonNotAllowed},
		"no right":    {w.newImport("no-right", a.Name, "no-right"), v1alpha1.ReasonNotAllowed},
		"no account":  {w.newImport("no-account", a.Name, "nobody"), v1alpha1.ReasonServiceAccountNotFound},
		"paused":      {w.newImport("is-paused", "paused", lister), v1alpha1.ReasonPaused},
		"no minter":   {w.newImport("no-minter", "no-secret", lister), v1alpha1.ReasonSecretNotFound},
		"taken":       {w.newImport("taken", a.Name, lister), v1alpha1.ReasonSecretExists},
	}
	for _, c := range cases {
		accesstest.Create(t, w.hub, c.i)
	}
	w.importQuickly(t)
	for _, c := range cases {
		w.waitForImport(t, c.i.Name, c.reason)
		secret := w.secretNamed(t, c.i.Name)
		switch {
		case c.reason == v1alpha1.ReasonAsExpected:
			wantWhole(t, secret, a)
			continue
		case c.reason == v1alpha1.ReasonSecretExists:
			if secret.ResourceVersion != foreign.ResourceVersion {
				t.Error("a Secret that is not of the import was written")
			}
		case secret != nil:
			t.Errorf("%s has a Secret", c.i.Name)
		}
		w.wantEvent(t, c.i.Name, c.reason)
	}
}

func TestWhatAnImportWasGivenIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, forbid := range map[string]func(w world, a *v1alpha1.ClusterAccess) string{
		"when it is not allowed any more": func(w world, a *v1alpha1.ClusterAccess) string {
			w.allowImports(t, a)
			return v1alpha1.ReasonNotAllowed
		},
		"when its cluster has left": func(w world, a *v1alpha1.ClusterAccess) string {
			accesstest.Must(t, w.hub.Client().Delete(t.Context(), a))
			return v1alpha1.ReasonClusterNotFound
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			a := w.mint(t)
			export(t, w.members[0], minterSubject(), lister)
			w.allowImports(t, a, lister)
			accesstest.Create(t, w.hub, w.newImport("given", a.Name, lister))
			accesstest.Create(t, w.hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "foreign"}})
			w.importQuickly(t)
			w.waitForImport(t, "given", v1alpha1.ReasonAsExpected)
			reason := forbid(w, a)
			i := w.waitForImport(t, "given", reason)
			if w.secretNamed(t, "given") != nil || len(i.Status.Secrets) > 0 || !i.Status.ExpirationTime.IsZero() {
				t.Errorf("the Secret is there still, or the status says so: %+v", i.Status)
			}
			if w.secretNamed(t, "foreign") == nil {
				t.Error("another Secret is gone")
			}
			w.wantEvent(t, "given", reason)
		})
	}
}

// refusing is a hub that answers requests with a method for Secrets with an error, while there is one.
type refusing struct {
	through http.RoundTripper
	method  string
	answer  atomic.Int32 // zero for none
	refused atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	code := int(r.answer.Load())
	if code == 0 || req.Method != r.method || !strings.Contains(req.URL.Path, "/secrets") {
		return r.through.RoundTrip(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	r.refused.Add(1)
	answer := apierrors.NewGenericServerResponse(code, req.Method, schema.GroupResource{Resource: "secrets"}, "given", "", 0, true).Status()
	body, err := json.Marshal(answer)
	return &http.Response{
		Request: req, StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, err
}

// importBy runs the controller of imports by a hub that may refuse something.
func (w world) importBy(t *testing.T, r *refusing) {
	t.Helper()
	cfg := w.hub.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		r.through = through
		return r
	})
	w.runBy(t, cfg, func(mgr manager.Manager) error {
		return access.Imports{Namespace: w.namespace}.SetupAtPace(mgr, 200*time.Millisecond, time.Hour)
	})
}

func TestAnImportIsNotReadyBeforeItsSecretIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	r := &refusing{method: http.MethodPost}
	r.answer.Store(http.StatusConflict)
	w.importBy(t, r)
	accesstest.Create(t, w.hub, w.newImport("given", a.Name, lister))
	until(t, "it was tried twice", func() bool { return r.refused.Load() >= 2 })
	i := &v1alpha1.ServiceAccountImport{}
	accesstest.Must(t, w.hub.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "given"}, i))
	if len(i.Status.Conditions) > 0 {
		t.Errorf("the status is %+v", i.Status)
	}
	r.answer.Store(http.StatusForbidden)
	w.waitForImport(t, "given", v1alpha1.ReasonNotAllowed)
	r.answer.Store(0)
	w.waitForImport(t, "given", v1alpha1.ReasonAsExpected)
}

// TestAnImportSaysThatItsSecretIsStillThere, although it is not allowed any more.
// interposed lets something happen between the first write of a Secret and that of a status which follows on it.
type interposed struct {
	through http.RoundTripper
	wrote   atomic.Bool
	once    sync.Once
	happens func()
}

// RoundTrip implements http.RoundTripper.
func (i *interposed) RoundTrip(req *http.Request) (*http.Response, error) {
	if i.wrote.Load() && req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") {
		i.once.Do(i.happens)
	}
	resp, err := i.through.RoundTrip(req)
	if err == nil && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") {
		i.wrote.Store(true)
	}
	return resp, err
}

func TestASecretIsTakenBackWhoseNameChangedBeforeTheStatusWasWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	i := w.newImport("given", a.Name, lister)
	accesstest.Create(t, w.hub, i)
	cfg := w.hub.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return &interposed{through: through, happens: func() {
			before := i.DeepCopy()
			i.Spec.SecretName = "other"
			accesstest.Must(t, w.hub.Client().Patch(t.Context(), i, client.MergeFrom(before)))
		}}
	})
	w.runBy(t, cfg, func(mgr manager.Manager) error {
		return access.Imports{Namespace: w.namespace}.SetupAtPace(mgr, 200*time.Millisecond, time.Hour)
	})
	until(t, "there is the other Secret", func() bool { return w.secretNamed(t, "other") != nil })
	w.waitForImport(t, "given", v1alpha1.ReasonAsExpected)
	if w.secretNamed(t, "given") != nil {
		t.Error("the Secret that it had before is there still")
	}
	w.allowImports(t, a)
	w.waitForImport(t, "given", v1alpha1.ReasonNotAllowed)
	for _, name := range []string{"given", "other"} {
		if w.secretNamed(t, name) != nil {
			t.Errorf("the Secret %q is there still, and nobody looks after it", name)
		}
	}
}

func TestAnImportSaysThatItsSecretIsStillThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	r := &refusing{method: http.MethodDelete}
	w.importBy(t, r)
	accesstest.Create(t, w.hub, w.newImport("given", a.Name, lister))
	w.waitForImport(t, "given", v1alpha1.ReasonAsExpected)
	r.answer.Store(http.StatusInternalServerError)
	w.allowImports(t, a)
	i := w.waitForImport(t, "given", v1alpha1.ReasonHub)
	if len(i.Status.Secrets) == 0 || !strings.Contains(i.Status.Conditions[0].Message, "cannot be deleted") {
		t.Errorf("the status is %+v", i.Status)
	}
	r.answer.Store(0)
	if i = w.waitForImport(t, "given", v1alpha1.ReasonNotAllowed); len(i.Status.Secrets) > 0 || w.secretNamed(t, "given") != nil {
		t.Errorf("the Secret is there, or the status says so: %+v", i.Status)
	}
}

// TestAnAccessThatChangesHasItsOwnImportsLookedAt, and no others.
func TestAnAccessThatChangesHasItsOwnImportsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	east := w.namespace + "-east"
	for name, cluster := range map[string]string{"own": east, "of-another": "west", "full": w.namespace + "/" + east, "of-none": "a/b/c"} {
		accesstest.Create(t, w.hub, w.newImport(name, cluster, lister))
	}
	a := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: east}}
	for want, o := range map[string]access.Imports{"own": {Namespace: w.namespace}, "full": {AllNamespaces: true}} {
		if got := o.ImportsOf(t.Context(), w.hub.Client(), a); len(got) != 1 || got[0].Name != want {
			t.Errorf("with %+v, %v are looked at", o, got)
		}
	}
	if got := (access.Imports{Namespace: "elsewhere"}).ImportsOf(t.Context(), w.hub.Client(), a); len(got) > 0 {
		t.Errorf("of an access that is not ours, %v are looked at", got)
	}
}

func TestImportsSayWhatToSet(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for _, o := range []access.Imports{{}, {Namespace: "fleet", AllNamespaces: true}} {
		if err := o.SetupWithManager(nil); err == nil || !strings.Contains(err.Error(), "Imports.Namespace") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestTheSecretOfAnImportGoesWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	w.hub.StartControllerManager(t, "garbage-collector-controller")
	i := w.newImport("gone", a.Name, lister)
	i.Spec.SecretName = "first"
	accesstest.Create(t, w.hub, i)
	w.importQuickly(t)
	i = w.waitForImport(t, "gone", v1alpha1.ReasonAsExpected)
	before := i.DeepCopy()
	i.Spec.SecretName = "second"
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), i, client.MergeFrom(before)))
	until(t, "the Secret has its other name", func() bool { return w.secretNamed(t, "first") == nil && w.secretNamed(t, "second") != nil })
	accesstest.Must(t, w.hub.Client().Delete(t.Context(), i))
	until(t, "the Secret is gone", func() bool { return w.secretNamed(t, "second") == nil })
}

func TestASecretOfAnImportThatWasChangedIsWrittenAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	accesstest.Create(t, w.hub, w.newImport("kept", a.Name, lister))
	w.importQuickly(t)
	w.waitForImport(t, "kept", v1alpha1.ReasonAsExpected)
	for what, change := range map[string]func(s *corev1.Secret){
		"a key is gone":    func(s *corev1.Secret) { delete(s.Data, "config") },
		"a key is another": func(s *corev1.Secret) { s.Data["server"] = []byte("https://example.com") },
		"no token at all":  func(s *corev1.Secret) { s.Data = nil },
		"the label":        func(s *corev1.Secret) { s.Labels = nil },
	} {
		secret := w.secretNamed(t, "kept")
		change(secret)
		accesstest.Must(t, w.hub.Client().Update(t.Context(), secret))
		until(t, "the Secret is whole after "+what, func() bool {
			now := w.secretNamed(t, "kept")
			return now.ResourceVersion != secret.ResourceVersion && len(now.Data) == 5 && now.Labels[v1alpha1.ImportLabel] == "kept"
		})
		wantWhole(t, w.secretNamed(t, "kept"), a)
	}
	accesstest.Must(t, w.hub.Client().Delete(t.Context(), w.secretNamed(t, "kept")))
	until(t, "the Secret is there again", func() bool { return w.secretNamed(t, "kept") != nil })
}

func TestAnImportedTokenIsNotSentToAServerThatWasEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.federate(t, 0)
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: accesstest.Prefix + "system:serviceaccount:" + w.namespace + ":" + accesstest.Operator}
	export(t, w.members[0], user, lister)
	w.allowImports(t, a, lister)
	accesstest.Create(t, w.hub, w.newImport("federated", a.Name, lister))
	w.importQuickly(t)
	w.waitForImport(t, "federated", v1alpha1.ReasonAsExpected)
	wantWhole(t, w.secretNamed(t, "federated"), a)
	if err := listsPods(t, w.secretNamed(t, "federated")); err != nil {
		t.Errorf("listing pods: %v", err)
	}
	before := w.secretNamed(t, "federated")
	old := a.DeepCopy()
	a.Spec.Server, a.Spec.CABundle = w.members[1].Config().Host, w.members[1].Config().CAData
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), a, client.MergeFrom(old)))
	w.waitForImport(t, "federated", v1alpha1.ReasonTokenRefused)
	if w.secretNamed(t, "federated").ResourceVersion != before.ResourceVersion {
		t.Error("the Secret was written, though there is no token for the server")
	}
}

// TestImportsOfAClusterThatDoesNotAnswerDelayNoOthers: there are more of them than are worked on at once, and attempts take time.
func TestImportsOfAClusterThatDoesNotAnswerDelayNoOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	silent := "https://" + mctest.Silent(t)
	secret := w.secret(t, a).DeepCopy()
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "silent"}
	secret.Data["server"] = []byte(silent)
	accesstest.Create(t, w.hub, secret)
	w.create(t, "silent", a, func(s *v1alpha1.ClusterAccessSpec) { s.Server, s.Minter.SecretName = silent, "silent" })
	const many = 100
	for n := range many {
		accesstest.Create(t, w.hub, w.newImport(fmt.Sprintf("down-%d", n), "silent", lister))
	}
	w.run(t, func(mgr manager.Manager) error {
		return access.Imports{Namespace: w.namespace}.SetupAtPace(mgr, time.Second, 3*time.Second)
	})
	w.waitForImport(t, "down-0", fleet.ReasonTimeout)
	accesstest.Create(t, w.hub, w.newImport("up", a.Name, lister))
	i := w.waitForImport(t, "up", v1alpha1.ReasonAsExpected)
	until(t, "it is renewed meanwhile", func() bool {
		return w.waitForImport(t, "up", v1alpha1.ReasonAsExpected).Status.RenewTime.After(i.Status.RenewTime.Time)
	})
	for n := range many {
		w.waitForImport(t, fmt.Sprintf("down-%d", n), fleet.ReasonTimeout)
	}
}
