package access_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

// hostile lets a server that is no API server join by a minter.
func (w world) hostile(t *testing.T, name string, serve http.HandlerFunc) *v1alpha1.ClusterAccess {
	t.Helper()
	server := httptest.NewTLSServer(serve)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	a := &v1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.ClusterAccessSpec{Server: server.URL, CABundle: ca, Minter: &v1alpha1.Minter{
			SecretName: name + "-minter", ServiceAccountNamespace: accesstest.Namespace, ServiceAccountName: accesstest.Worker,
		}},
	}
	accesstest.Create(t, w.hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name + "-minter"}, Data: map[string][]byte{
		v1alpha1.MinterToken: []byte("x"), v1alpha1.MinterServer: []byte(server.URL), v1alpha1.MinterCA: ca,
		v1alpha1.MinterNamespace: []byte("a"), v1alpha1.MinterServiceAccount: []byte("b"),
	}})
	accesstest.Create(t, w.hub, a)
	return a
}

// tokenThatSays returns a token that says this of itself.
func tokenThatSays(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// grants answers each request for a token with one that says this of itself, and expires after a while.
func grants(t *testing.T, claims string, expires time.Duration, asked *atomic.Int32) http.HandlerFunc {
	t.Helper()
	token := tokenThatSays(claims)
	return func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Status:   authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(time.Now().Add(expires))},
		})
	}
}

func TestAMemberThatGrantsTokensThatExpireAtOnceMakesNoLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	now := time.Now().Unix()
	for name, c := range map[string]struct {
		claims  string
		expires time.Duration
	}{
		"says nothing of itself, and has expired": {"{}", -time.Hour},
		"expires before it was made":              {fmt.Sprintf(`{"iat": %d, "exp": %d}`, now, now-60), -time.Minute},
		"lives for a second":                      {fmt.Sprintf(`{"iat": %d, "exp": %d}`, now, now+1), time.Hour},
		"lives for longer than can be said":       {fmt.Sprintf(`{"iat": %d, "exp": 1e300}`, now), -time.Hour},
	} {
		var asked atomic.Int32
		a := w.hostile(t, accessName(name), grants(t, c.claims, c.expires, &asked))
		sources := access.NewSources(w.client(t))
		source := sources.Source(a, nil)
		for range 100 {
			if token, err := source.Token(t.Context()); err == nil {
				t.Fatalf("%s: it gives %s", name, token)
			}
		}
		sources.Close()
		if n := asked.Load(); n > 10 {
			t.Errorf("%s: the member was asked %d times", name, n)
		}
	}
}

func accessName(text string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(text) }

func TestAMemberWhoseAnswerDoesNotEndTakesNoMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	var sent atomic.Int64
	a := w.hostile(t, "endless", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"`)
		for piece := strings.Repeat("x", 1<<16); req.Context().Err() == nil; sent.Add(1 << 16) {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	})
	_, err := w.client(t).Token(t.Context(), a)
	if err == nil || !strings.Contains(err.Error(), "too large") || len(err.Error()) > 1000 {
		t.Errorf("the error is %v", err)
	}
	if got := sent.Load(); got > 64<<20 {
		t.Errorf("%d bytes were read", got)
	}
}

func TestATokenThatLivesForCenturiesIsShownAndWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	var asked atomic.Int32
	a := w.hostile(t, "forever", grants(t, `{"iat": 1000, "exp": 253402300799}`, time.Hour, &asked))
	token, err := w.client(t).Token(t.Context(), a)
	if err != nil || token.Expires.Before(time.Now()) || token.Expires.Year() > 9999 {
		t.Fatalf("it gives %s, and the error is %v", token, err)
	}
	if _, err := token.Expires.MarshalJSON(); err != nil {
		t.Error(err)
	}
}

// calls answers the question for the user with a name, and passes on all else.
func calls(user string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/selfsubjectreviews") {
			next(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
		})
	}
}

func TestWhatAClusterCallsTheUserIsBoundedAndLegible(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	var asked atomic.Int32
	for name, user := range map[string]string{"odd": "a\x1b[31mred\nb\u202e", "long": strings.Repeat("u", 5000)} {
		a := w.hostile(t, name, calls(user, grants(t, `{"iat": 1000, "exp": 5000}`, time.Hour, &asked)))
		r := access.NewReconciler(w.client(t), w.hub.Client())
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
			t.Errorf("%s: the status is not written: %.200v", name, err)
		}
		subject := w.waitFor(t, name, v1alpha1.ReasonAsExpected).Status.Subject
		if len(subject) > 1024 || subject == "" || strings.ContainsAny(subject, "\x1b\n\u202e") {
			t.Errorf("%s: the status has the subject %q", name, subject)
		}
	}
}
