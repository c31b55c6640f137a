package kind

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// history is what became of the ConfigMaps of a member, in the order in which its API server has stored it.
type history struct {
	mu     sync.Mutex // guards writes and sums
	writes []write
	sums   map[string]string // the last of each ConfigMap
}

// write is one of the operator: the checksum of a ConfigMap has changed.
type write struct {
	name, replica string
	version       string // of the replica
	epoch         int64
	right         bool // it is that of the data
}

// record notes what becomes of the ConfigMaps of a member until the test ends.
func record(t *testing.T, member client.WithWatch) *history {
	t.Helper()
	h := &history{sums: map[string]string{}}
	options := []client.ListOption{client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{wanted: "true"}}
	before := &corev1.ConfigMapList{}
	must(t, member.List(t.Context(), before, options...))
	for _, found := range before.Items {
		h.sums[found.Name] = found.Annotations[checksum]
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(t.Context(), before.ResourceVersion, watching(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return member.Watch(ctx, &corev1.ConfigMapList{}, append(options, &client.ListOptions{Raw: &o})...)
	}))
	must(t, err)
	var noting sync.WaitGroup
	noting.Go(func() {
		for event := range watcher.ResultChan() {
			if found, ok := event.Object.(*corev1.ConfigMap); ok && event.Type != watch.Deleted {
				h.note(found)
			}
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		noting.Wait()
	})
	return h
}

type watching func(context.Context, metav1.ListOptions) (watch.Interface, error)

func (w watching) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return w(ctx, o)
}

func (h *history) note(found *corev1.ConfigMap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sum := found.Annotations[checksum]; sum != h.sums[found.Name] {
		h.sums[found.Name] = sum
		w := write{name: found.Name, right: sum == sumOf(found.Data["content"])}
		if _, err := fmt.Sscanf(found.Annotations[author], "%s in epoch %d, version %s", &w.replica, &w.epoch, &w.version); err == nil {
			h.writes = append(h.writes, w)
		}
	}
}

// isInOrder checks that nobody wrote a member at the same time as somebody else: each epoch has one replica, and once another
// has begun, nothing is written in the one before. A write is of the data that was there.
func (h *history) isInOrder(t *testing.T, member string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := map[int64]string{}
	var last int64
	for i, w := range h.writes {
		switch owner, known := owners[w.epoch]; {
		case !w.right:
			t.Errorf("%s: write %d of %d, %+v, is not the checksum of what is there", member, i, len(h.writes), w)
		case w.epoch < last:
			t.Errorf("%s: write %d of %d, %+v, comes after one of epoch %d", member, i, len(h.writes), w, last)
		case known && owner != w.replica:
			t.Errorf("%s: both %s and %s wrote in epoch %d", member, owner, w.replica, w.epoch)
		}
		owners[w.epoch], last = w.replica, w.epoch
	}
	t.Logf("%s: %d writes by %v", member, len(h.writes), slices.Collect(maps.Values(owners)))
}

// versions returns those that have written, in their order.
func (h *history) versions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]string, len(h.writes))
	for i, w := range h.writes {
		all[i] = w.version
	}
	return slices.Compact(all)
}

// writing changes ConfigMaps of all members again and again, until finish is called, which returns what the last content of
// each is to be.
func (o *operator) writing(t *testing.T) (finish func() map[string]string) {
	t.Helper()
	const configMaps, every = 10, 50 * time.Millisecond
	end, last := make(chan struct{}), map[string]string{}
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			name, content := "written-"+strconv.Itoa(i%configMaps), strconv.Itoa(i)
			for member := range o.members {
				if err := o.change(t.Context(), member, name, content); err != nil {
					t.Errorf("writing %s in %s: %v", name, member, err)
					return
				}
			}
			last[name] = content
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	})
	return func() map[string]string {
		close(end)
		writing.Wait()
		return last
	}
}

// sumOf is the checksum of a ConfigMap with this content.
func sumOf(content string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, `[{"content":%q},null]`, content))
	return hex.EncodeToString(sum[:])
}
