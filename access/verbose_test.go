package access_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

// transcript is what a logger has been told, at each level. It is safe for concurrent use.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *transcript) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text.WriteString(line + "\n")
	}, funcr.Options{Verbosity: 10})
}

// shows returns a piece of the token's signature that was logged, if there is one. A body that is no text is logged as a dump, in rows
// of 16 bytes.
func (l *transcript) shows(token string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const piece = 8
	signature := token[strings.LastIndex(token, ".")+1:]
	for i := range len(signature) - piece {
		if strings.Contains(l.text.String(), signature[i:i+piece]) {
			return signature[i : i+piece]
		}
	}
	return ""
}

func (l *transcript) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func TestNoTokenIsLoggedAtAnyLevel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, logged := w.mint(t), &transcript{}
	tokens := map[string]string{"the minter's first": string(w.secret(t, a).Data[v1alpha1.MinterToken])}
	ctx := logr.NewContext(t.Context(), logged.logger())
	hub := w.client(t)
	token, err := hub.Token(ctx, a)
	accesstest.Must(t, err)
	tokens["the worker's"] = token.Value()
	_, err = access.Check(ctx, a, token)
	accesstest.Must(t, err)
	_, _, err = hub.KeepMinter(ctx, a, 9*time.Minute)
	accesstest.Must(t, err)
	tokens["the minter's next"] = string(w.secret(t, a).Data[v1alpha1.MinterToken])

	w.allowImports(t, a, lister)
	export(t, w.members[0], minterSubject(), lister)
	accesstest.Create(t, w.hub, w.newImport("imported", a.Name, lister))
	mgr, err := ctrl.NewManager(w.hub.Config(), ctrl.Options{
		Scheme: w.hub.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logged.logger(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)}, BaseContext: func() context.Context { return ctx },
	})
	accesstest.Must(t, err)
	accesstest.Must(t, access.Controller{}.SetupWithManager(mgr))
	accesstest.Must(t, access.Imports{Namespace: w.namespace}.SetupWithManager(mgr))
	start(t, mgr)
	w.waitFor(t, a.Name, v1alpha1.ReasonAsExpected)
	w.waitForImport(t, "imported", v1alpha1.ReasonAsExpected)
	tokens["the imported"] = string(w.secretNamed(t, "imported").Data[v1alpha1.ImportToken])

	if !logged.has("Body") {
		t.Error("no body of any request is logged, so this shows nothing")
	}
	for whose, token := range tokens {
		if piece := logged.shows(token); piece != "" {
			t.Errorf("%s token is logged: …%s…", whose, piece)
		}
	}
}
