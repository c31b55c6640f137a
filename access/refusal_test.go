package access

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// TestATokenThatAServerAnswersWithIsNotShown: what is wrong with a cluster is in logs and in statuses.
func TestATokenThatAServerAnswersWithIsNotShown(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJtaW50ZXIifQ.c2lnbmF0dXJl"
	for name, tc := range map[string]struct {
		answer func(rw http.ResponseWriter, said string)
		reason string
	}{
		"in a refusal": {func(rw http.ResponseWriter, said string) {
			refusal := apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "worker", errors.New(said)).Status()
			refusal.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			if err := json.NewEncoder(rw).Encode(refusal); err != nil {
				panic(err)
			}
		}, v1alpha1.ReasonNotAllowed},
		"in a page about an error": {func(rw http.ResponseWriter, said string) {
			http.Error(rw, "bad request: "+said, http.StatusInternalServerError)
		}, fleet.ReasonServerError},
		"in part": {func(rw http.ResponseWriter, said string) {
			http.Error(rw, "bad request: "+said[:40], http.StatusInternalServerError)
		}, fleet.ReasonServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { tc.answer(rw, req.Header.Get("Authorization")) }))
			t.Cleanup(server.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			_, err := minter{token: token}.request(t.Context(), cfg, "fleet", "worker", 0)
			if err == nil || strings.Contains(err.Error(), token[:24]) || !strings.Contains(err.Error(), "(not shown: ") || reasonOf(err) != tc.reason {
				t.Errorf("the reason is %s, want %s, and the error %v", reasonOf(err), tc.reason, err)
			}
			hour := time.Now().Add(time.Hour)
			source := &Source{token: Token{value: new(token), Expires: hour}, renewAt: hour}
			if err := source.Authorize(cfg); err != nil {
				t.Fatal(err)
			}
			client, err := typedcorev1.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Pods("default").Get(t.Context(), "worker", metav1.GetOptions{})
			if err == nil || strings.Contains(err.Error(), token[:24]) || tc.reason == v1alpha1.ReasonNotAllowed != apierrors.IsForbidden(err) {
				t.Errorf("what a controller asks for ends with %v", err)
			}
		})
	}
}

// TestNoAnswerShowsAToken in an error or in the log, be it a refusal or not, and whatever headers it has.
func TestNoAnswerShowsAToken(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJtaW50ZXIifQ.c2lnbmF0dXJl"
	failure := `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"` + token + `"}`
	for name, tc := range map[string]struct {
		header, value, body string
		status              int
	}{
		"a type that nobody knows":  {"Content-Type", "a/b" + token, "{}", http.StatusOK},
		"a failure with 200":        {"Content-Type", "application/json", failure, http.StatusOK},
		"neither yes nor no":        {"Content-Type", "application/json", failure, http.StatusMultipleChoices},
		"a warning":                 {"Warning", `299 - "` + token + `"`, "no", http.StatusNotFound},
		"a warning about something": {"Warning", `299 - "it is deprecated"`, "no", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set(tc.header, tc.value)
				rw.WriteHeader(tc.status)
				_, _ = rw.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			var logged strings.Builder
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{}))
			access := &v1alpha1.ClusterAccess{Spec: v1alpha1.ClusterAccessSpec{Server: server.URL, CABundle: ca}}
			_, unchecked := Check(ctx, access, Token{value: new(token)})
			_, unmade := minter{token: token}.request(ctx, cfg, "fleet", "worker", 0)
			if said := fmt.Sprint(unchecked, unmade, logged.String()); unmade == nil || strings.Contains(said, token[:24]) || logged.Len() > 0 {
				t.Errorf("it is said: %s", said)
			}
			hour := time.Now().Add(time.Hour)
			if err := (&Source{token: Token{value: new(token), Expires: hour}, renewAt: hour}).Authorize(cfg); err != nil {
				t.Fatal(err)
			}
			client, err := typedcorev1.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Pods("default").Get(ctx, "worker", metav1.GetOptions{})
			if said := fmt.Sprint(oneline.Error(err, maxCause), logged.String()); err == nil || strings.Contains(said, token[:24]) {
				t.Errorf("of what a controller asks for is said: %s", said)
			}
		})
	}
}
