package dependents

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// mostAbsences is how many kinds are remembered of which there is nothing in a cluster.
const mostAbsences = 1000

// absences are the kinds of which the installation has nothing in a cluster that serves them, by when that was asked. They hold for all
// owners, until the kind is watched.
type absences struct {
	mu    sync.Mutex // guards asked
	asked map[schema.GroupKind]time.Time
}

func newAbsences() (*absences, error) { return &absences{asked: map[schema.GroupKind]time.Time{}}, nil }

// forgetAbsence has it asked anew whether there is something of a kind in a cluster: it was watched, so there may have been some.
func (w *watches) forgetAbsence(at remote.Session, kind schema.GroupKind) {
	absent, _ := w.absent.Get(at, newAbsences) // it makes one if need be
	absent.mu.Lock()
	defer absent.mu.Unlock()
	delete(absent.asked, kind)
}

// note notes that there is nothing of a kind. The kind may be part of a longer text, which is not to be kept.
func (a *absences) note(kind schema.GroupKind, asked time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) >= mostAbsences {
		clear(a.asked)
	}
	delete(a.asked, kind) // with its text
	a.asked[schema.GroupKind{Group: strings.Clone(kind.Group), Kind: strings.Clone(kind.Kind)}] = asked
}

// errSome ends a list that has an item.
var errSome = errors.New("there are some")

// isAbsent reports whether the installation has nothing of a kind in the cluster: one request for all owners. If it has some, the kind is
// watched there anyway, and its cache is read.
func (p *placement) isAbsent(ctx context.Context, k remote.Kind) (bool, error) {
	absent, _ := p.engine.watches.absent.Get(p.at, newAbsences) // it makes one if need be
	absent.mu.Lock()
	asked, is := absent.asked[k.GroupKind()]
	absent.mu.Unlock()
	if is && !asked.Before(p.o.born) {
		return true, nil
	}
	begun := time.Now()
	first := remote.Scan{Namespaces: p.engine.cfg.namespaces, PageSize: 1}
	err := first.Each(ctx, p.engine.access, p.at, k, remote.OfFleet(p.engine.cfg.fleet), func(*metav1.PartialObjectMetadata) error { return errSome })
	if errors.Is(err, errSome) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	absent.note(k.GroupKind(), begun)
	return true, nil
}
