package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// identityAnswered returns the identity that is read when a server answers so.
func identityAnswered(t *testing.T, status int, answer string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	return identifier(&rest.Config{Host: server.URL})(t.Context(), newTestGeneration(t, server))
}

// TestAnIdentityIsPlainText: it is logged and shown as it is.
func TestAnIdentityIsPlainText(t *testing.T) {
	for uid, plain := range map[string]bool{
		"0b6fd1f1-8f2c-4b6b-a0e3-6f1b5d7c9e21": true,
		`a\n{\"level\":\"error\"}`:             false,
		`\u001b[31mred`:                        false,
		`\u202egnol`:                           false,
		"a b":                                  false,
		"":                                     false,
		strings.Repeat("x", 100_000):           false,
	} {
		identity, err := identityAnswered(t, http.StatusOK, fmt.Sprintf(`{"metadata":{"name":"kube-system","uid":"%s"}}`, uid))
		if plain && (err != nil || identity != uid) || !plain && !errors.Is(err, errNoAPIServer) {
			t.Errorf("%.50q: %.50q, %v", uid, identity, err)
		}
	}
}

// TestAnIdentityIsThatOfTheSystemNamespace alone.
func TestAnIdentityIsThatOfTheSystemNamespace(t *testing.T) {
	for answer, want := range map[string]error{
		`{"metadata":{"name":"kube-system","uid":"1"}}`: nil, `{"metadata":{"name":"default","uid":"1"}}`: errNoAPIServer, `{"metadata":`: errNoAPIServer,
	} {
		if _, err := identityAnswered(t, http.StatusOK, answer); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", answer, err, want)
		}
	}
}

// TestAServerIsReadyThatDoesNotTell, since its user may not ask or it does not know the path.
func TestAServerIsReadyThatDoesNotTell(t *testing.T) {
	for status, ready := range map[int]bool{
		http.StatusOK: true, http.StatusForbidden: true, http.StatusNotFound: true, http.StatusUnauthorized: false, http.StatusInternalServerError: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer server.Close()
		if err := prober(&rest.Config{Host: server.URL})(t.Context(), newTestGeneration(t, server)); (err == nil) != ready {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestWhoAnswersWithoutAStatusSaysNothingOfTheIdentity: a gateway that knows no way to the cluster is not another one.
func TestWhoAnswersWithoutAStatusSaysNothingOfTheIdentity(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest} {
		_, err := identityAnswered(t, status, "404 page not found")
		if now, unknown := orUnknown("", "", err); now != "" || unknown != nil {
			t.Errorf("%d, and nothing was known: %q, %v, want unknown", status, now, unknown)
		}
		if _, err := orUnknown("a", "", err); !errors.Is(err, errNotSaid) {
			t.Errorf("%d, and the identity was known: %v, want errNotSaid", status, err)
		}
		said := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, status, map[int]string{
			http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound", http.StatusBadRequest: "BadRequest",
		}[status])
		if identity, err := identityAnswered(t, status, said); identity != "" || err != nil {
			t.Errorf("%d of an API server: %q, %v, want unknown", status, identity, err)
		}
	}
}

// TestWhatDoesNotSayWhoItIsTakesNoPlace: a description leads to a gateway that knows no way, while another one works.
func TestWhatDoesNotSayWhoItIsTakesNoPlace(t *testing.T) {
	server, _ := asked(t)
	w := newTestWire(t, server, func() (string, error) { return "", errNotSaid })
	w.before = "a"
	if identity, err := w.settle(t.Context()); !errors.Is(err, errNotSaid) {
		t.Errorf("it is %q, %v, want errNotSaid", identity, err)
	}
	w.before = ""
	if identity, err := w.settle(t.Context()); identity != "" || err != nil {
		t.Errorf("nobody has the place: it is %q, %v, want unknown", identity, err)
	}
}
