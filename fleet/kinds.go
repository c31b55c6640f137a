package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds keeps, for one engagement, which kinds cannot be listed or watched, and why. One failing kind of one member is
// a state of that pair alone.
type kinds struct {
	mu      sync.Mutex // guards failing and changed
	failing map[schema.GroupVersionKind]map[any]error
	changed map[schema.GroupVersionKind]chan struct{} // closed at the next failure of the kind

	onChange func() // called without the lock when a kind began or ceased to fail
}

func newKinds() *kinds {
	return &kinds{
		failing: map[schema.GroupVersionKind]map[any]error{}, changed: map[schema.GroupVersionKind]chan struct{}{},
		onChange: func() {},
	}
}

// report notes what by found: that the kind cannot be listed, or, with a nil error, that it can. Several may report on
// one kind, such as the informers of several namespaces; it fails while one of them does. The answer is whether that
// is news.
func (k *kinds) report(gvk schema.GroupVersionKind, by any, err error) (news bool) {
	news = k.note(gvk, by, err)
	if news {
		k.onChange()
	}
	return news
}

func (k *kinds) note(gvk schema.GroupVersionKind, by any, err error) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, failed := k.failing[gvk][by]
	if err == nil {
		delete(k.failing[gvk], by)
		if len(k.failing[gvk]) == 0 {
			delete(k.failing, gvk)
		}
		return failed
	}
	if k.failing[gvk] == nil {
		k.failing[gvk] = map[any]error{}
	}
	k.failing[gvk][by] = err
	if waiting, ok := k.changed[gvk]; ok {
		close(waiting)
		delete(k.changed, gvk)
	}
	return !failed || classify(before) != classify(err)
}

// check returns a channel that is closed when the kind begins to fail, or else why it does already.
func (k *kinds) check(gvk schema.GroupVersionKind) (begins <-chan struct{}, failure error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, err := range k.failing[gvk] {
		return nil, err
	}
	if k.changed[gvk] == nil {
		k.changed[gvk] = make(chan struct{})
	}
	return k.changed[gvk], nil
}

// summary says, by kind, what is wrong. It is nil when nothing is.
func (k *kinds) summary() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.failing) == 0 {
		return nil
	}
	out := make(map[string]string, len(k.failing))
	for gvk, errs := range k.failing {
		for err := range maps.Values(errs) {
			out[gvk.GroupKind().String()] = fmt.Sprintf("%s: %s", classify(err), message(err))
			break
		}
	}
	return out
}

func notSyncedMessage(kinds map[string]string) string {
	lines := make([]string, 0, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, kind+": "+kinds[kind])
	}
	return strings.Join(lines, "; ")
}
