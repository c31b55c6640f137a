package objects_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr/funcr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// messages keeps what is logged.
type messages struct {
	mu    sync.Mutex // guards what follows
	lines []string
}

func newMessages() *messages { return &messages{} }

// context returns a context whose logger keeps the messages here.
func (m *messages) context(ctx context.Context) context.Context {
	return logf.IntoContext(ctx, funcr.New(func(_, line string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lines = append(m.lines, line)
	}, funcr.Options{}))
}

func (m *messages) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}
