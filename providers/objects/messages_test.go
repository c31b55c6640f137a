package objects_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// messages keeps what is logged.
type messages struct {
	mu    sync.Mutex // guards what follows
	news  chan struct{}
	lines []string
}

func newMessages() *messages { return &messages{news: make(chan struct{})} }

// context returns a context whose logger keeps the messages here.
func (m *messages) context(ctx context.Context) context.Context {
	return logf.IntoContext(ctx, funcr.New(func(_, line string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lines = append(m.lines, line)
		close(m.news)
		m.news = make(chan struct{})
	}, funcr.Options{}))
}

func (m *messages) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

// waitFor waits for a message that has all the parts.
func (m *messages) waitFor(t *testing.T, parts ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		lines, news := m.lines, m.news
		m.mu.Unlock()
		for _, line := range lines {
			if hasAll(line, parts) {
				return
			}
		}
		select {
		case <-news:
		case <-timeout:
			t.Fatalf("no message with %q in:\n%s", parts, strings.Join(lines, "\n"))
		}
	}
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}
