package dependents

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// WaveAnnotation on what Desired returns is an integer: waves are applied in their order, each once all objects of those before
// are applied and ready. Removal goes in the reverse order. Without it, Namespaces and CustomResourceDefinitions go first, and all
// others are of the wave 0.
//
// An object is ready by the rules of kstatus, https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus: workloads are
// rolled out, CustomResourceDefinitions are established, and any object is ready that has no condition which says otherwise. Jobs
// are ready once they are complete.
const WaveAnnotation = "fleet-runtime.dev/wave"

// ErrWaiting says that something else must come first: a wave before that is not ready, or other clusters of a [Rollout].
var ErrWaiting = errors.New("waiting")

// wave says when an object is applied: the lowest goes first.
type wave int64

// firstWave is that of Namespaces and CRDs. No annotation can say one before.
const firstWave wave = math.MinInt32 - 1

var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// waveOf returns the wave of an object. If what it says cannot be read, the error says so, and the wave is that of its kind.
func waveOf(kind schema.GroupKind, obj client.Object) (wave, error) {
	var of wave
	if kind == namespaceKind || kind == crdKind {
		of = firstWave
	}
	said, ok := obj.GetAnnotations()[WaveAnnotation]
	if !ok {
		return of, nil
	}
	n, err := strconv.ParseInt(said, 10, 32)
	if err != nil {
		return of, fmt.Errorf("the annotation %s is %.64q, and must be an integer of 32 bits", WaveAnnotation, said)
	}
	return wave(n), nil
}

// sequence is how far the waves of a cluster have come.
type sequence struct {
	known    wave // after it, something may be missing that belongs to an earlier wave
	last     wave
	wave     wave  // of what was applied last
	missing  error // why the next wave must not begin
	everyone bool  // is to be ready, also of the last wave
	unready  error // why the first object that is not ready is not
	// lacking are the namespaces that could not be created, and why what belongs there must wait. Nothing else waits for them.
	lacking map[string]error
}

// errPartly says that it is not known what belongs to the waves before.
var errPartly = fmt.Errorf("%w: it is not known all that is desired", ErrWaiting)

// sequenceOf returns the sequence of what Desired returned. Where that is not all, something of any wave may be missing: nothing goes
// ahead but what comes before all others, and the first wave of these.
func (p *placement) sequenceOf(wants []wanted, isAll bool) *sequence {
	s := &sequence{known: math.MaxInt64, everyone: p.asked.rollout.limits(), lacking: map[string]error{}}
	for _, w := range wants {
		if !isAll && w.wave > firstWave {
			s.known = min(s.known, w.wave)
		}
	}
	return s
}

// begin begins with what is to be applied, in this order.
func (s *sequence) begin(wants []wanted) {
	if len(wants) > 0 {
		s.wave, s.last = wants[0].wave, wants[len(wants)-1].wave
	}
}

// before returns why an object must not be applied yet, nil if it may.
func (s *sequence) before(w wave) error {
	switch {
	case w > s.wave && s.missing != nil:
		return s.missing
	case w > s.known:
		return errPartly
	default:
		return nil
	}
}

// note notes what came of an object.
func (s *sequence) note(at remote.Session, w wanted, result ObjectResult) {
	s.wave = w.wave
	if w.shared {
		if unlessContended(result.Err) != nil || result.State == Suspended {
			s.lacking[w.obj.GetName()] = fmt.Errorf("%s of %s is not as desired: %w", w.kind.Describe(w.obj), at, ErrWaiting)
		}
		return
	}
	if w.wave == s.last && !s.everyone {
		return
	}
	why := unlessContended(result.Err)
	switch {
	case why == nil && result.State == Suspended:
		why = fmt.Errorf("%s of %s is suspended: %w", w.kind.Describe(w.obj), at, ErrWaiting)
	case why == nil && result.Object != nil:
		if why = unready(w.kind, result.Object); why != nil {
			why = fmt.Errorf("%s of %s is not ready: %w", w.kind.Describe(w.obj), at, why)
		}
		s.unready = cmp.Or(s.unready, why)
	case why != nil && !errors.Is(why, ErrWaiting): // the error is told where it belongs
		why = fmt.Errorf("%s of %s is not as desired: %w", w.kind.Describe(w.obj), at, ErrWaiting)
	}
	s.missing = cmp.Or(s.missing, why)
}

// lastOf divides dependents: those of the last wave are removed first, and the others after that.
func lastOf(all []dependent) (now, later []dependent) {
	var last wave
	for i, d := range all {
		w, _ := waveOf(d.GroupKind(), d.obj) // what cannot be read was refused before
		if i == 0 || w > last {
			last = w
		}
	}
	for _, d := range all {
		if w, _ := waveOf(d.GroupKind(), d.obj); w == last {
			now = append(now, d)
		} else {
			later = append(later, d)
		}
	}
	return now, later
}

// inWaves orders what is wanted by wave. In each, those go last that hung before: else the others would never have their turn.
func (p *placement) inWaves(wants []wanted) {
	slices.SortStableFunc(wants, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(a.wave, b.wave), p.compareHung(p.keyOf(a.kind, a.obj), p.keyOf(b.kind, b.obj)))
	})
}

// compareHung compares objects, or kinds: those that hung before come after the others.
func (p *placement) compareHung(a, b dependentKey) int {
	switch hung := p.o.hungBefore(a); {
	case hung == p.o.hungBefore(b):
		return 0
	case hung:
		return 1
	default:
		return -1
	}
}
