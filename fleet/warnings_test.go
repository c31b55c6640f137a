package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestWarningsOfAMemberAreBounded in size and in number, and show no token. The limit is the member's, however often it is connected.
func TestWarningsOfAMemberAreBounded(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Warning", fmt.Sprintf(`299 - "Bearer %s %s"`, token, strings.Repeat("x", 100_000)))
		rw.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	m := newMember(New(Options{}), Member{Name: "a", Config: &rest.Config{Host: server.URL}})
	for range 3 {
		cfg, err := m.usable(m.described)
		if err != nil {
			t.Fatal(err)
		}
		c, err := typedcorev1.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range firstWarnings {
			if err := c.Namespaces().Delete(ctx, "a", metav1.DeleteOptions{}); err == nil {
				t.Fatal("a namespace was deleted")
			}
		}
	}
	if len(lines) < firstWarnings || len(lines) > firstWarnings+2 { // a minute may go by, on a busy machine
		t.Fatalf("there are %d lines", len(lines))
	}
	for _, line := range lines {
		if len(line) > 2*maxWarning || strings.Contains(line, token) || !strings.Contains(line, `"cluster"="a"`) {
			t.Errorf("a line is %.1000s", line)
		}
	}
}

// TestAHandlerOfWarningsThatTheUserHasIsUsed instead of the fleet's.
func TestAHandlerOfWarningsThatTheUserHasIsUsed(t *testing.T) {
	t.Parallel()
	m := newMember(New(Options{}), Member{Name: "a", Config: &rest.Config{Host: "https://127.0.0.1:1", WarningHandlerWithContext: rest.NoWarnings{}}})
	cfg, err := m.usable(m.described)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.WarningHandlerWithContext != (rest.NoWarnings{}) {
		t.Errorf("the handler is %T", cfg.WarningHandlerWithContext)
	}
}
