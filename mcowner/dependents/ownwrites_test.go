package dependents_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// lossy loses the answer to the first patch of an owner, once its event is known.
type lossy struct {
	through http.RoundTripper
	path    string
	known   func(context.Context) bool
	once    *sync.Once
}

// RoundTrip implements http.RoundTripper.
func (l lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.through.RoundTrip(req)
	if err != nil || req.Method != http.MethodPatch || !strings.HasSuffix(req.URL.Path, l.path) {
		return resp, err
	}
	l.once.Do(func() {
		err = errors.New("the test loses the answer")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !l.known(req.Context()) && req.Context().Err() == nil {
			<-tick.C
		}
	})
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (l lossy) WrappedRoundTripper() http.RoundTripper { return l.through }

// TestALostAnswerHoldsUpNoOwner: its write was carried out, and its event was taken for one of the controller's own.
func TestALostAnswerHoldsUpNoOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	started := make(chan struct{})
	var p *process
	cfg := w.Local.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return lossy{through, "/configmaps/a", func(ctx context.Context) bool {
			<-started
			cm := &corev1.ConfigMap{}
			err := p.GetCache().Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "a"}, cm)
			return err == nil && holds(cm)
		}, &sync.Once{}}
	})
	p = w.runAs(cfg, func(mgr mcmanager.Manager) error { return w.spread().SetupWithManager(mgr) })
	close(started)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	w.isCopied(w.Members[0], "a")
}

// TestAChangeThatIsTakenBackIsFollowed: the owner is then as the controller has written it last.
func TestAChangeThatIsTakenBackIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	for value := range strings.FieldsSeq("2 1 2 1") {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		eventually(t, "the copy has the value "+value, func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == value })
	}
}
