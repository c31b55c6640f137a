package command_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

func TestCheckSendsNoTokenWhereTheMemberRedirects(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	sent := &said{}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sent.note(req.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"gitVersion":"v1.0.0"}`))
	}))
	t.Cleanup(other.Close)
	s.addFederated(t, http.RedirectHandler(other.URL+"/inner?secret", http.StatusFound).ServeHTTP)
	if r := s.run(t, "check", "east"); r.code != 3 || !strings.Contains(r.errOut, "Redirected") || !strings.Contains(r.errOut, `to "`+other.URL+`"`) || strings.Contains(r.errOut, "secret") {
		t.Errorf("%+v", r)
	}
	if text := sent.all(); text != "" {
		t.Errorf("the server without TLS, to which the member redirects, was asked, with %d bytes of credentials", len(strings.TrimSpace(text)))
	}
}

// addFederated adds an access to a server that answers so, which is to accept tokens of the hub.
func (s *stage) addFederated(t *testing.T, answer http.HandlerFunc) {
	t.Helper()
	member := httptest.NewTLSServer(answer)
	t.Cleanup(member.Close)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}}
	if err := s.Local.Client().Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	access := &accessv1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"}, Spec: accessv1alpha1.ClusterAccessSpec{
		Server: member.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: member.Certificate().Raw}),
		Federated: &accessv1alpha1.Federated{ServiceAccountName: account.Name},
	}}
	if err := s.Local.Client().Create(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Local.Client().Delete(context.WithoutCancel(t.Context()), access); err != nil {
			t.Error(err)
		}
	})
}
