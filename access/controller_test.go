package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestAnAccessSaysWhyItDoesNotWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	minted := w.mint(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: accesstest.Operator}}
	accesstest.Must(t, w.hub.Client().Create(t.Context(), account))
	federated := minted.DeepCopy()
	federated.Spec.Minter, federated.Spec.Federated = nil, &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	otherCA := w.hub.Config().CAData
	secret := w.secret(t, minted)
	const certified = "localhost" // in the certificate of each API server
	for name, change := range map[string]func(s *corev1.Secret){
		"expired":   func(s *corev1.Secret) { s.Data["token"] = []byte("eyJhbGciOiJSUzI1NiJ9.e30.c2ln") },
		"half":      func(s *corev1.Secret) { delete(s.Data, "serviceAccount") },
		"wrong-ca":  func(s *corev1.Secret) { s.Data["ca.crt"] = otherCA },
		"is-copied": func(s *corev1.Secret) { s.Data["server"] = []byte(" " + federated.Spec.Server) },
		"has-name":  func(s *corev1.Secret) { s.Data["tlsServerName"] = []byte(certified) },
	} {
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: secret.DeepCopy().Data}
		change(copied)
		accesstest.Must(t, w.hub.Client().Create(t.Context(), copied))
	}
	refusing := mctest.Address(t)

	type spec = v1alpha1.ClusterAccessSpec
	cases := map[string]struct {
		from   *v1alpha1.ClusterAccess
		change func(s *spec)
		reason string
	}{
		"works":              {minted, func(*spec) {}, v1alpha1.ReasonAsExpected},
		"paused":             {minted, func(s *spec) { s.Paused = true }, v1alpha1.ReasonPaused},
		"no-worker":          {minted, func(s *spec) { s.Minter.ServiceAccountName = "nobody" }, v1alpha1.ReasonNotAllowed},
		"no-secret":          {minted, func(s *spec) { s.Minter.SecretName = "none" }, v1alpha1.ReasonSecretNotFound},
		"half-a-secret":      {minted, func(s *spec) { s.Minter.SecretName = "half" }, v1alpha1.ReasonSecretInvalid},
		"expired-minter":     {minted, func(s *spec) { s.Minter.SecretName = "expired" }, v1alpha1.ReasonMinterExpired},
		"another-server":     {minted, func(s *spec) { s.Server = "https://" + refusing }, v1alpha1.ReasonMismatch},
		"almost-this-server": {minted, func(s *spec) { s.Minter.SecretName = "is-copied" }, v1alpha1.ReasonMismatch},
		"another-ca":         {minted, func(s *spec) { s.CABundle = otherCA }, v1alpha1.ReasonMismatch},
		"secret-of-another":  {minted, func(s *spec) { s.Minter.SecretName = "wrong-ca" }, v1alpha1.ReasonMismatch},
		"another-name":       {minted, func(s *spec) { s.TLSServerName = certified }, v1alpha1.ReasonMismatch},
		"no-name":            {minted, func(s *spec) { s.Minter.SecretName = "has-name" }, v1alpha1.ReasonMismatch},
		"by-name":            {minted, func(s *spec) { s.Minter.SecretName, s.TLSServerName = "has-name", certified }, v1alpha1.ReasonAsExpected},
		"no-account":         {federated, func(s *spec) { s.Federated.ServiceAccountName = "nobody" }, v1alpha1.ReasonServiceAccountNotFound},
		"not-trusted":        {federated, func(*spec) {}, v1alpha1.ReasonTokenRefused},
		"wrong-ca":           {federated, func(s *spec) { s.CABundle = otherCA }, fleet.ReasonCertificate},
		"loopback":           {federated, func(s *spec) { s.Server = "https://" + refusing }, v1alpha1.ReasonLoopback},
		"no-ca":              {federated, func(s *spec) { s.CABundle = []byte("-----BEGIN CERTIFICATE-----") }, v1alpha1.ReasonInvalid},

		strings.Repeat("n", 253): {minted, func(*spec) {}, v1alpha1.ReasonAsExpected},
	}
	for name, c := range cases {
		w.create(t, name, c.from, c.change)
	}
	w.control(t)
	for name, c := range cases {
		a := w.waitFor(t, name, c.reason)
		ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
		works := c.reason == v1alpha1.ReasonAsExpected
		if (ready.Status == metav1.ConditionTrue) != works || (ready.Message == "") != works {
			t.Errorf("%s is %+v", name, ready)
		}
		if works && a.Status.Subject != accesstest.WorkerUser {
			t.Errorf("%s is taken for %q", name, a.Status.Subject)
		}
		authorized := metav1.ConditionFalse
		switch c.reason {
		case v1alpha1.ReasonAsExpected, v1alpha1.ReasonTokenRefused, fleet.ReasonCertificate, v1alpha1.ReasonLoopback: // there is a token
			authorized = metav1.ConditionTrue
		case v1alpha1.ReasonPaused:
			authorized = metav1.ConditionUnknown
		}
		if is := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionAuthorized); is == nil || is.Status != authorized {
			t.Errorf("that tokens may be made for %s is %+v", name, is)
		}
	}
}

func (w world) secret(t *testing.T, a *v1alpha1.ClusterAccess) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	accesstest.Must(t, w.hub.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: a.Spec.Minter.SecretName}, secret))
	return secret
}

func TestAMemberWithTheIssuerOfTheHubIsToldApartFromOneThatDoesNotTrustIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.members[0].RestartWith(t, "--service-account-issuer="+accesstest.Issuer(w.hub))
	accesstest.OpenDiscovery(t, w.members[0])
	a := accesstest.New(w.members[0], w.namespace, "east")
	a.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	accesstest.Create(t, w.hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: accesstest.Operator}})
	accesstest.Create(t, w.hub, a)
	w.control(t)
	w.waitFor(t, "east", v1alpha1.ReasonEqualIssuers)
}

func TestAnAccessThatComesToWorkSaysSoAndIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	worker := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accesstest.Namespace, Name: accesstest.Worker}}
	accesstest.Must(t, w.members[0].Client().Delete(t.Context(), worker.DeepCopy()))
	counted := &statusWrites{Client: w.hub.Client()}
	r := access.NewReconciler(w.client(t), counted)
	check := func(reason string) {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
				t.Fatal(err)
			}
			w.waitFor(t, a.Name, reason)
		}
	}
	check(v1alpha1.ReasonServiceAccountNotFound)
	accesstest.Must(t, w.members[0].Client().Create(t.Context(), worker))
	check(v1alpha1.ReasonAsExpected)
	if n := counted.writes.Load(); n != 2 {
		t.Errorf("the status was written %d times in 6 checks with 2 outcomes", n)
	}
}

// statusWrites counts how often a status is written.
type statusWrites struct {
	client.Client

	writes atomic.Int32
}

// Status implements client.Client.
func (s *statusWrites) Status() client.SubResourceWriter {
	s.writes.Add(1)
	return s.Client.Status()
}

func TestAnAccessThatIsFederatedInsteadShowsNoLifeOfAMintersToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	r := access.NewReconciler(w.client(t), w.hub.Client())
	reconcile := func() *v1alpha1.ClusterAccess {
		t.Helper()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
		accesstest.Must(t, err)
		now := &v1alpha1.ClusterAccess{}
		accesstest.Must(t, w.hub.Client().Get(t.Context(), client.ObjectKeyFromObject(a), now))
		return now
	}
	if now := reconcile(); now.Status.ExpirationTime.IsZero() || now.Status.RenewTime.IsZero() {
		t.Errorf("with a minter, the status is %+v", now.Status)
	}
	before := a.DeepCopy()
	a.Spec.Minter, a.Spec.Federated = nil, &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), a, client.MergeFrom(before)))
	if now := reconcile(); !now.Status.ExpirationTime.IsZero() || !now.Status.RenewTime.IsZero() {
		t.Errorf("without a minter, the status is %+v", now.Status)
	}
}

// behind is a client as it is when somebody writes right after each object was read.
type behind struct{ client.Client }

// Get implements client.Client.
func (b behind) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := b.Client.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	written := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it is a copy of one
	written.SetLabels(map[string]string{"written": "meanwhile"})
	return b.Patch(ctx, written, client.MergeFrom(obj))
}

func TestAnAccessThatWasWrittenMeanwhileIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	r := access.NewReconciler(w.client(t), behind{w.hub.Client()})
	again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
	if err != nil || again.RequeueAfter != time.Second {
		t.Errorf("it is tried again after %s, and the error is %v", again.RequeueAfter, err)
	}
}

func TestAMintersTokenIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, hub := w.mint(t), w.client(t)
	before := w.secret(t, a)
	if _, _, err := hub.KeepMinter(t.Context(), a, 7*time.Minute); err != nil || w.secret(t, a).ResourceVersion != before.ResourceVersion {
		t.Errorf("the error is %v, or it is renewed before four fifths of its life", err)
	}
	made, expires, err := hub.KeepMinter(t.Context(), a, 9*time.Minute)
	if life := expires.Sub(made); err != nil || life != access.MinterExpiration {
		t.Errorf("the error is %v, and it lives for %s", err, life)
	}
	if after := w.secret(t, a); string(after.Data["token"]) == string(before.Data["token"]) || string(after.Data["server"]) != a.Spec.Server {
		t.Error("the Secret has no new token, or has lost what else it held")
	}
	if _, err := hub.Token(t.Context(), a); err != nil {
		t.Errorf("the new one makes no tokens: %v", err)
	}
}

func TestAMintersTokenIsRenewedByTheClockOfTheMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	for name, ahead := range map[string]time.Duration{"ahead": 30 * time.Minute, "behind": -50 * time.Minute} {
		var later atomic.Int64
		clock := func() time.Time { return time.Now().Add(ahead).Add(time.Duration(later.Load())) }
		claims := func() string {
			return fmt.Sprintf(`{"iat":%d,"exp":%d}`, clock().Unix(), clock().Add(time.Hour).Unix())
		}
		var asked atomic.Int32
		a := w.hostile(t, name, calls("worker", func(rw http.ResponseWriter, req *http.Request) {
			grants(t, claims(), ahead+time.Hour, &asked)(rw, req)
		}))
		secret := w.secret(t, a)
		secret.Data[v1alpha1.MinterToken] = []byte(tokenThatSays(claims()))
		accesstest.Must(t, w.hub.Client().Update(t.Context(), secret))
		r := access.NewReconciler(w.client(t), w.hub.Client())
		kept := true
		for minute := 0; minute < 60; minute += 5 {
			later.Store(int64(time.Duration(minute) * time.Minute))
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
			accesstest.Must(t, err)
			kept = string(w.secret(t, a).Data[v1alpha1.MinterToken]) == string(secret.Data[v1alpha1.MinterToken])
			if !kept && minute < 48 {
				t.Fatalf("%s: it is renewed after %d of 60 minutes", name, minute)
			}
		}
		if kept {
			t.Errorf("%s: it is not renewed after 55 minutes, and expires after 60", name)
		}
	}
}

func TestAnAccessSaysThatItsMintersTokenIsNotRenewedBeforeThatExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	now := time.Now()
	expires := now.Add(5 * time.Minute).Truncate(time.Second)
	var asked atomic.Int32
	a := w.hostile(t, "east", calls("worker", grants(t, fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Unix(), now.Add(time.Hour).Unix()), time.Hour, &asked)))
	secret := w.secret(t, a)
	secret.Data[v1alpha1.MinterToken] = []byte(tokenThatSays(fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(-55*time.Minute).Unix(), expires.Unix())))
	accesstest.Must(t, w.hub.Client().Update(t.Context(), secret))
	reader := w.hub.AddUser(t, "reader", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	refused, err := access.NewHub(reader, nil)
	accesstest.Must(t, err)
	versions := map[string]bool{}
	for range 3 {
		_, err := access.NewReconciler(refused, w.hub.Client()).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
		accesstest.Must(t, err)
		is := w.waitFor(t, a.Name, v1alpha1.ReasonNotRenewed)
		ready := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionReady)
		if ready.Status != metav1.ConditionTrue || !is.Status.ExpirationTime.Time.Equal(expires) {
			t.Errorf("it can be used until %s, and is %+v", is.Status.ExpirationTime, ready)
		}
		for _, says := range []string{"(NotAllowed), and expires at " + expires.UTC().Format(time.RFC3339), "secrets \"east-minter\" is forbidden"} {
			if !strings.Contains(ready.Message, says) {
				t.Errorf("%q is not in %q", says, ready.Message)
			}
		}
		versions[is.ResourceVersion] = true
	}
	if len(versions) != 1 {
		t.Errorf("one outcome was written %d times", len(versions))
	}
	_, err = access.NewReconciler(w.client(t), w.hub.Client()).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
	accesstest.Must(t, err)
	w.waitFor(t, a.Name, v1alpha1.ReasonAsExpected)
}

// TestAnAccessSaysUntilWhenItCanBeUsedAlsoWhereTheSecretCannotBeReadAgain: a token is made with one look at it, and renewed with another.
func TestAnAccessSaysUntilWhenItCanBeUsedAlsoWhereTheSecretCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]func(*http.Request) (*http.Response, error){
		"the hub is away": func(*http.Request) (*http.Response, error) { return nil, errors.New("the hub is away") },
		"the right is gone": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0)
			now := time.Now()
			expires := now.Add(time.Hour).Truncate(time.Second)
			claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Unix(), expires.Unix())
			var asked, read atomic.Int32
			a := w.hostile(t, "east", calls("worker", grants(t, claims, time.Hour, &asked)))
			secret := w.secret(t, a)
			secret.Data[v1alpha1.MinterToken] = []byte(tokenThatSays(claims))
			accesstest.Must(t, w.hub.Client().Update(t.Context(), secret))
			cfg := w.hub.Config()
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if strings.HasSuffix(req.URL.Path, "/secrets/east-minter") && read.Add(1) == 4 { // the second of the second time
						return refused(req)
					}
					return rt.RoundTrip(req)
				})
			})
			hub, err := access.NewHub(cfg, nil)
			accesstest.Must(t, err)
			for _, reason := range []string{v1alpha1.ReasonAsExpected, v1alpha1.ReasonNotRenewed} {
				_, err := access.NewReconciler(hub, w.hub.Client()).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)})
				accesstest.Must(t, err)
				is := w.waitFor(t, a.Name, reason).Status
				says := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionReady).Message
				if !is.ExpirationTime.Time.Equal(expires) || is.RenewTime.Unix() != now.Unix() || strings.Contains(says, "does not say when") {
					t.Errorf("%s: it can be used until %s, and says %q", reason, is.ExpirationTime, says)
				}
			}
		})
	}
}

func TestAMintersTokenIsKeptWhereTheMemberGrantsLessThanItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, hub := w.mint(t), w.client(t)
	first := w.secret(t, a)
	if _, _, err := hub.KeepMinter(t.Context(), a, 6*24*time.Hour); err != nil || w.secret(t, a).ResourceVersion != first.ResourceVersion {
		t.Errorf("the error is %v, or it gave way to one that is to be renewed at once", err)
	}
	_, _, err := hub.KeepMinter(t.Context(), a, 9*time.Minute)
	accesstest.Must(t, err)
	before := w.secret(t, a)
	w.members[0].RestartWith(t, "--service-account-max-token-expiration=1h")
	for range 3 {
		if _, _, err := hub.KeepMinter(t.Context(), a, 6*24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if w.secret(t, a).ResourceVersion != before.ResourceVersion {
		t.Error("a token for days gave way to one for an hour")
	}
}

func TestAMintersSecretThatWasWrittenMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	cfg := w.hub.Config()
	cfg.Wrap(touching(t, w, a))
	hub, err := access.NewHub(cfg, nil)
	accesstest.Must(t, err)
	if _, _, err := hub.KeepMinter(t.Context(), a, 9*time.Minute); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	if w.secret(t, a).Data["touched"] == nil {
		t.Error("what was written meanwhile is gone")
	}
}

// TestTwoManagersOfOneAccessKeepOneMintersToken is of two fleets with their ClusterAccesses in one namespace, which have a controller each.
func TestTwoManagersOfOneAccessKeepOneMintersToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	before := w.secret(t, a)
	hubs := []*access.Hub{w.client(t), w.client(t)}
	errs := make(chan error, len(hubs))
	for _, hub := range hubs {
		go func() {
			_, _, err := hub.KeepMinter(t.Context(), a, 9*time.Minute)
			errs <- err
		}()
	}
	kept := 0
	for range hubs {
		if err := <-errs; err == nil {
			kept++
		} else if !apierrors.IsConflict(err) {
			t.Errorf("the error is %v, want none or a conflict", err)
		}
	}
	if kept == 0 || w.secret(t, a).ResourceVersion == before.ResourceVersion {
		t.Error("neither has renewed the minter's token")
	}
	versions := map[string]bool{}
	for range 3 {
		for _, hub := range hubs {
			r := access.NewReconciler(hub, w.hub.Client())
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
				t.Fatal(err)
			}
			versions[w.waitFor(t, a.Name, v1alpha1.ReasonAsExpected).ResourceVersion] = true
		}
	}
	if len(versions) != 1 {
		t.Errorf("two controllers have written one status %d times", len(versions))
	}
}

func TestAnAccessWithoutTheRightToMakeTokensSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := accesstest.New(w.members[0], w.namespace, "east")
	a.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	hub, err := access.NewHub(w.hub.AddUser(t, "reader", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}), nil)
	accesstest.Must(t, err)
	_, err = hub.Token(t.Context(), a)
	if fleet.ReasonOf(err) != v1alpha1.ReasonNotAllowed || !strings.Contains(err.Error(), "serviceaccounts") {
		t.Errorf("the error is %v", err)
	}
	a.Spec.Federated, a.Spec.Minter = nil, &v1alpha1.Minter{SecretName: "minter"}
	if _, err = hub.Token(t.Context(), a); fleet.ReasonOf(err) != v1alpha1.ReasonNotAllowed || !strings.Contains(err.Error(), "minter") {
		t.Errorf("the error is %v", err)
	}
	output.Note(err.Error())
}
