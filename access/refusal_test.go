package access

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
			err = asController(t.Context(), t, cfg, token)
			if strings.Contains(err.Error(), token[:24]) || tc.reason == v1alpha1.ReasonNotAllowed != apierrors.IsForbidden(err) {
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
		bare                bool // a controller's own error has it, as the answer is none of those that are looked through
	}{
		"a type that nobody knows":  {"Content-Type", "a/b" + token, "{}", http.StatusOK, false},
		"a failure with 200":        {"Content-Type", "application/json", failure, http.StatusOK, true},
		"neither yes nor no":        {"Content-Type", "application/json", failure, http.StatusMultipleChoices, false},
		"a warning":                 {"Warning", `299 - "` + token + `"`, failure, http.StatusConflict, false},
		"a warning about something": {"Warning", `299 - "it is deprecated"`, failure, http.StatusConflict, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answers atomic.Int32
			a := answering(t, false, func(rw http.ResponseWriter, _ *http.Request) {
				answers.Add(1)
				rw.Header().Set("Content-Type", "application/json")
				rw.Header().Set(tc.header, tc.value)
				rw.WriteHeader(tc.status)
				_, _ = rw.Write([]byte(tc.body))
			})
			cfg, err := Config(a.Spec)
			if err != nil {
				t.Fatal(err)
			}
			var logged strings.Builder
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{}))
			_, unchecked := Check(ctx, a, Token{value: new(token)})
			_, unmade := minter{token: token}.request(ctx, cfg, "fleet", "worker", 0)
			said := fmt.Sprint(unchecked, unmade)
			if answers.Load() != 2 || unmade == nil || strings.Contains(said, token[:24]) || logged.Len() > 0 {
				t.Errorf("after %d answers it is said: %s, and logged: %s", answers.Load(), said, logged.String())
			}
			err = asController(ctx, t, cfg, token)
			if strings.Contains(err.Error(), token[:24]) != tc.bare || strings.Contains(logged.String(), token[:24]) {
				t.Errorf("of what a controller asks for is said: %v, and logged: %s", err, logged.String())
			}
			if said := oneline.Error(err, maxCause).Error(); strings.Contains(said, token[:24]) {
				t.Errorf("it is shown: %s", said)
			}
		})
	}
}

// asController asks a cluster for something as a controller does, and returns the error.
func asController(ctx context.Context, t *testing.T, cfg *rest.Config, token string) error {
	t.Helper()
	hour := time.Now().Add(time.Hour)
	if err := (&Source{token: Token{value: new(token), Expires: hour}, renewAt: hour}).Authorize(cfg); err != nil {
		t.Fatal(err)
	}
	client, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.Pods("default").Get(ctx, "worker", metav1.GetOptions{}); err == nil {
		t.Fatal("there is a Pod")
	}
	return err
}
