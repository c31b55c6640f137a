package access

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
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
