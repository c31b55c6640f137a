package remote

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// unservedFor is for how long it is remembered that a cluster does not serve a kind, or gave no answer in time about it.
	unservedFor = 10 * time.Second
	// mostUnserved is how many such kinds are remembered of a cluster: whoever may write an owner may note any on it.
	mostUnserved = 1000
)

// mapper is a cluster's REST mapper that remembers for a short while which kinds the cluster does not serve. The cluster's own asks the
// API server each time, as a CustomResourceDefinition may have come: it would be asked by each owner that needs the kind, and each would
// wait for an API that hangs.
type mapper struct {
	meta.RESTMapper

	unserved *unserved
}

// Mapper returns the REST mapper of a cluster for work on many owners: what it says of a kind that is not served, or of which there was no
// answer, may be ten seconds old.
func (a *Access) Mapper(at Session) meta.ResettableRESTMapper {
	unserved, _ := a.unserved.Get(at, newUnserved) // it makes one if need be
	return mapper{at.Cluster.GetRESTMapper(), unserved}
}

// IsUnserved reports whether a cluster does not serve a kind in its version, by an answer that may be ten seconds old. A cluster that
// cannot be asked may serve it.
func (a *Access) IsUnserved(at Session, k Kind) bool {
	_, err := a.Mapper(at).RESTMapping(k.GroupKind(), k.Version)
	return meta.IsNoMatchError(err)
}

// Served returns a kind in a version that a cluster serves, in its own if that is one, and false if it serves none. Objects are the same in
// all versions. What cannot be told now is returned as it is, with the error that says why. No timeout of a request bounds it, but that of
// discovery, which is ten seconds.
func (a *Access) Served(at Session, k Kind) (served Kind, is bool, err error) {
	mapper := a.Mapper(at)
	if _, err = mapper.RESTMapping(k.GroupKind(), k.Version); !meta.IsNoMatchError(err) {
		return k, true, err
	}
	other, err := mapper.RESTMapping(k.GroupKind())
	switch {
	case err == nil:
		return Untyped(other.GroupVersionKind), true, nil
	case meta.IsNoMatchError(err):
		return k, false, nil
	default:
		return k, true, err
	}
}

// NoteServed notes that a kind was read in a cluster.
func (a *Access) NoteServed(at Session, k Kind) {
	a.NoteComing(at, k.GroupVersionKind)
	a.NoteComing(at, k.GroupKind().WithVersion(""))
}

// NoteComing notes that a cluster serves a kind from now on, in a version, or, if that is empty, in any. It reports whether it was
// remembered that it does not: whoever was told so is to ask again.
func (a *Access) NoteComing(at Session, gvk schema.GroupVersionKind) (was bool) {
	unserved, _ := a.unserved.Get(at, newUnserved)
	return unserved.forget(gvk)
}

// RESTMapping implements meta.RESTMapper. Mappers guess a List for each kind, which no API server serves: a kind that is named so has a List too.
func (m mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	proof := kind
	if strings.HasSuffix(kind.Kind, "List") {
		proof.Kind += "List"
	}
	ask := func(versions ...string) error {
		key := kind.WithVersion(strings.Join(versions, ""))
		return m.unserved.ask(key, func() error {
			_, err := m.RESTMapper.RESTMapping(proof, versions...)
			return err
		})
	}
	err := ask()
	if err == nil && len(versions) == 1 {
		err = ask(versions...)
	}
	if err != nil {
		return nil, err
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

// Reset implements meta.ResettableRESTMapper.
func (m mapper) Reset() {
	m.unserved.clear()
	meta.MaybeResetRESTMapper(m.RESTMapper)
}

// unserved are the kinds that a cluster does not serve, or of which it gave no answer in time, by what was asked: a kind in one version, or,
// with an empty one, in any.
type unserved struct {
	mu    sync.Mutex // guards kinds; nothing is asked under it
	kinds map[schema.GroupVersionKind]*answer
}

func newUnserved() (*unserved, error) {
	return &unserved{kinds: map[schema.GroupVersionKind]*answer{}}, nil
}

// answer is what all are told that ask for a kind while it is asked for, and, if it is not served or hangs, for a while after that.
type answer struct {
	since time.Time     // when it was asked for; if it hangs, when that was known
	known chan struct{} // closed once the rest is set
	no    bool          // the kind is not served
	err   error         // why it is not known
}

// ask asks whether a kind is served, unless somebody asks for it already, or it was not served a moment ago.
func (u *unserved) ask(kind schema.GroupVersionKind, do func() error) error {
	a, asked := u.answerTo(kind)
	if !asked {
		a.err = errPanicked
		defer u.settle(kind, a)
		if a.err = do(); meta.IsNoMatchError(a.err) {
			a.no, a.err = true, noMatch(kind)
		}
		return a.err
	}
	<-a.known
	return a.err
}

// errPanicked is what those are told who wait for somebody who asks.
var errPanicked = errors.New("asking whether a kind is served: it panicked")

// noMatch says that a kind is not served. Of what is remembered nothing is part of a longer text, which would be kept as well.
func noMatch(kind schema.GroupVersionKind) error {
	err := &meta.NoKindMatchError{GroupKind: cloned(kind).GroupKind()}
	if kind.Version != "" {
		err.SearchedVersions = []string{strings.Clone(kind.Version)}
	}
	return err
}

func cloned(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: strings.Clone(kind.Group), Version: strings.Clone(kind.Version), Kind: strings.Clone(kind.Kind)}
}

// answerTo returns the answer that was asked for, or a new one to be asked for. Where too many are remembered, nobody else gets that.
func (u *unserved) answerTo(kind schema.GroupVersionKind) (a *answer, asked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.kinds[kind]; a != nil && time.Since(a.since) < unservedFor {
		return a, true
	}
	a = &answer{since: time.Now(), known: make(chan struct{})}
	if len(u.kinds) >= mostUnserved {
		u.expireLocked()
	}
	if len(u.kinds) < mostUnserved {
		u.kinds[kind] = a
	}
	return a, false
}

func (u *unserved) expireLocked() {
	for kind, a := range u.kinds {
		if time.Since(a.since) >= unservedFor {
			delete(u.kinds, kind)
		}
	}
}

// settle tells an answer to all who wait for it, and remembers it if the kind is not served, or hangs.
func (u *unserved) settle(kind schema.GroupVersionKind, a *answer) {
	close(a.known)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.kinds[kind] != a {
		return
	}
	delete(u.kinds, kind)
	if hangs := errors.Is(a.err, context.DeadlineExceeded); a.no || hangs {
		if hangs {
			a.since = time.Now()
		}
		u.kinds[cloned(kind)] = a
	}
}

// forget lets it be asked anew whether a kind is served, and reports whether it was remembered that it is not.
func (u *unserved) forget(kind schema.GroupVersionKind) (was bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.kinds[kind]; a != nil {
		delete(u.kinds, kind)
		select {
		case <-a.known:
			return a.no
		default: // whoever asks now gets what is so now
		}
	}
	return false
}

func (u *unserved) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.kinds)
}
