package access

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// answering lets a server that gives one answer join, federated or by a minter.
func answering(t *testing.T, federated bool, answer http.HandlerFunc) *v1alpha1.ClusterAccess {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	a := &v1alpha1.ClusterAccess{Spec: v1alpha1.ClusterAccessSpec{
		Server:   server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	if federated {
		a.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: "a"}
	} else {
		a.Spec.Minter = &v1alpha1.Minter{SecretName: "a"}
	}
	return a
}

// status answers each request with a status, and requests for the issuer with something of its own.
func status(code int, ofIssuer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/openid-configuration") {
			ofIssuer(w, req)
			return
		}
		w.Header().Set("Location", "https://example.com/inner?secret")
		w.WriteHeader(code)
	}
}

func says(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// TestWhatAServerAnswersToATokenIsTold: of the answers of a server that is another one, or an API server that is set up in another way.
func TestWhatAServerAnswersToATokenIsTold(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		federated bool
		answer    http.HandlerFunc
		user      string
		reason    string
		message   string
	}{
		"accepted, without any right":    {answer: status(403, http.NotFound), user: "somebody"},
		"it leads elsewhere":             {answer: status(302, http.NotFound), reason: fleet.ReasonRedirected, message: `to "https://example.com" (302)`},
		"the cluster's own is refused":   {answer: status(401, http.NotFound), reason: v1alpha1.ReasonTokenRefused, message: "another cluster may answer"},
		"one of the same issuer":         {federated: true, answer: status(401, says(200, `{"issuer": "hub"}`)), reason: v1alpha1.ReasonEqualIssuers, message: `"hub"`},
		"one of another issuer":          {federated: true, answer: status(401, says(200, `{"issuer": "member"}`)), reason: v1alpha1.ReasonTokenRefused, message: `trust the issuer "hub"`},
		"it does not tell its issuer":    {federated: true, answer: status(401, says(403, `{"issuer": "hub"}`)), reason: v1alpha1.ReasonTokenRefused, message: `trust the issuer "hub"`},
		"what it tells is cut off":       {federated: true, answer: status(401, says(200, `{"issuer": "hub"`)), reason: v1alpha1.ReasonTokenRefused, message: `trust the issuer "hub"`},
		"another's answer, and a minter": {answer: status(401, says(200, `{"issuer": "hub"}`)), reason: v1alpha1.ReasonTokenRefused, message: "another cluster may answer"},
	} {
		a := answering(t, c.federated, c.answer)
		user, err := Check(t.Context(), a, Token{value: new("secret"), Subject: "somebody", Issuer: "hub"})
		if user != c.user || (err == nil) != (c.reason == "") || err != nil && (reasonOf(err) != c.reason || !strings.Contains(err.Error(), c.message) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: the token is taken for %q, and the error is %v", what, user, err)
		}
	}
}

// TestAUserThatIsTheTokenIsNotTold: the name goes into statuses. The cluster chooses it, be it in an answer or in a token that it makes.
func TestAUserThatIsTheTokenIsNotTold(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJtaW50ZXIifQ.c2lnbmF0dXJl"
	for user, want := range map[string]string{token: "(hidden token)", "user:" + token[:40]: "user:(hidden token)", "eyJhbGciOiJSUzI1Ni": "eyJhbGciOiJSUzI1Ni", "system:serviceaccount:a:b": "system:serviceaccount:a:b"} {
		a := answering(t, false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
			})
		})
		if got, err := Check(t.Context(), a, Token{value: new(token), Subject: "somebody"}); got != want || err != nil {
			t.Errorf("%q is told as %q, %v, want %q", user, got, err, want)
		}
		for _, answer := range []int{http.StatusForbidden, http.StatusNotFound} { // as of one that may not ask, and of an old API server
			a := answering(t, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) })
			if got, err := Check(t.Context(), a, Token{value: new("another"), Subject: user}); got != want || err != nil {
				t.Errorf("%q, of which the token says it, is told as %q, %v, want %q, after an answer with %d", user, got, err, want, answer)
			}
		}
	}
}

// TestAClusterThatIsTooOldToTellWhoTheUserIsHasAcceptedTheToken where it has made that, so that it is an API server: anything else may answer that
// it has no such thing without a look at the token.
func TestAClusterThatIsTooOldToTellWhoTheUserIsHasAcceptedTheToken(t *testing.T) {
	t.Parallel()
	token := Token{value: new("secret"), Subject: "somebody", Issuer: "hub"}
	for _, federated := range []bool{true, false} {
		a := answering(t, federated, status(404, http.NotFound))
		user, err := Check(t.Context(), a, token)
		if federated && reasonOf(err) != fleet.ReasonNoKind || !federated && (user != "somebody" || err != nil) {
			t.Errorf("federated %t: the token is taken for %q, and the error is %v", federated, user, err)
		}
		if user, err := checkOwn(t.Context(), a, token); user != "" || reasonOf(err) != fleet.ReasonNoKind {
			t.Errorf("federated %t: that of an import is taken for %q, and the error is %v", federated, user, err)
		}
	}
}

// TestManyQuestionsWithATokenDoNotWaitForTheirTurn, of which client-go gives five a second.
func TestManyQuestionsWithATokenDoNotWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	err := Call(&rest.Config{Host: "https://east.example.com", QPS: 5}, "secret", func(cfg *rest.Config, _ *http.Client) error {
		if cfg.QPS >= 0 {
			t.Errorf("%v questions a second", cfg.QPS)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestARefusedTokenOfTheClusterIsNotTakenForTheHubs, as that of an import is not where the controllers come with the hub's.
func TestARefusedTokenOfTheClusterIsNotTakenForTheHubs(t *testing.T) {
	t.Parallel()
	for _, federated := range []bool{true, false} {
		a := answering(t, federated, status(401, says(200, `{"issuer": "member"}`)))
		_, err := checkOwn(t.Context(), a, Token{value: new("secret"), Subject: "somebody", Issuer: "member"})
		if reasonOf(err) != v1alpha1.ReasonTokenRefused || !strings.Contains(err.Error(), "the token that it has made") {
			t.Errorf("federated %t: %v", federated, err)
		}
	}
}

// TestAnIssuerThatIsNotToldIsAnError, and not one without a name.
func TestAnIssuerThatIsNotToldIsAnError(t *testing.T) {
	t.Parallel()
	for _, answer := range []http.HandlerFunc{says(200, `{}`), says(200, `{"issuer": ""}`), says(200, "nonsense"), says(404, `{"issuer": "a"}`)} {
		a := answering(t, true, answer)
		issuer, err := ReadIssuer(t.Context(), &rest.Config{Host: a.Spec.Server, TLSClientConfig: rest.TLSClientConfig{CAData: a.Spec.CABundle}})
		if issuer != "" || err == nil || !strings.Contains(err.Error(), a.Spec.Server) {
			t.Errorf("it is %q, and the error is %v", issuer, err)
		}
	}
}

func TestASpecThatCannotBeUsedSaysWhichFieldIsWrong(t *testing.T) {
	t.Parallel()
	server := answering(t, true, http.NotFound).Spec
	for _, c := range []struct {
		field  string // empty if it can be used
		change func(s *v1alpha1.ClusterAccessSpec)
	}{
		{"", func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "socks5://proxy:1080" }},
		{"spec.server", func(s *v1alpha1.ClusterAccessSpec) { s.Server = "http://example.com" }},
		{"spec.server", func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://" }},
		{"spec.server", func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://user:password@example.com" }},
		{"spec.server", func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://exa mple.com" }},
		{"spec.caBundle", func(s *v1alpha1.ClusterAccessSpec) { s.CABundle = []byte("nonsense") }},
		{"spec.federated and spec.minter", func(s *v1alpha1.ClusterAccessSpec) { s.Federated = nil }},
		{"spec.federated and spec.minter", func(s *v1alpha1.ClusterAccessSpec) { s.Minter = &v1alpha1.Minter{} }},
		{"spec.proxyURL", func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "http://user:password@proxy" }},
		{"spec.proxyURL", func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "proxy" }},
		{"spec.proxyURL", func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "http://pro xy" }},
	} {
		spec := server
		c.change(&spec)
		cfg, err := Config(spec)
		if (err == nil) != (c.field == "") || err != nil && (!strings.Contains(err.Error(), c.field) || strings.Contains(err.Error(), "password")) {
			t.Errorf("%+v: the error is %v", spec, err)
		}
		if err == nil && (cfg.Proxy == nil || cfg.Host != spec.Server) {
			t.Errorf("the way to the cluster is %+v", cfg)
		}
	}
}

// TestATokenGoesToTheServerOfTheConfigAlone, and nowhere without TLS.
func TestATokenGoesToTheServerOfTheConfigAlone(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("the server without TLS is asked, with %d bytes of credentials", len(req.Header.Get("Authorization")))
	}))
	t.Cleanup(elsewhere.Close)
	leads := answering(t, true, http.RedirectHandler(elsewhere.URL+"/inner?secret", http.StatusTemporaryRedirect).ServeHTTP)
	for _, c := range []struct {
		reason string
		config *rest.Config
	}{
		{v1alpha1.ReasonInvalid, &rest.Config{Host: elsewhere.URL}},
		{fleet.ReasonRedirected, &rest.Config{Host: leads.Spec.Server, TLSClientConfig: rest.TLSClientConfig{CAData: leads.Spec.CABundle}}},
	} {
		err := Call(c.config, "secret", func(cfg *rest.Config, client *http.Client) error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host, http.NoBody)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		})
		if fleet.ReasonOf(err) != c.reason || strings.Contains(err.Error(), "secret") {
			t.Errorf("at %s: %v, want the reason %s", c.config.Host, err, c.reason)
		}
	}
}
