package dependents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
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

// noWave is before all waves.
const noWave wave = math.MinInt64

// waveOf returns the wave of an object. If what it says cannot be read, the error says so, and the wave is that of its kind.
func waveOf(kind schema.GroupKind, obj client.Object) (wave, error) {
	of := usualWave(kind)
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

// usualWave is that of objects of a kind which say none.
func usualWave(kind schema.GroupKind) wave {
	if kind == namespaceKind || kind == crdKind {
		return firstWave
	}
	return 0
}

// noteWaves notes in which waves objects are about to be written to a cluster. Those that are there may be of the wave that was noted before.
func (o *ownerState) noteWaves(name mcreconcile.ClusterName, wants []wanted) {
	o.mu.Lock()
	defer o.mu.Unlock()
	present := &o.partLocked(name).present
	if present.waves == nil {
		present.waves = map[schema.GroupKind]wave{}
	}
	for _, w := range wants {
		if before, is := present.waves[w.kind.GroupKind()]; w.err == nil && (!is || w.wave > before) {
			present.waves[w.kind.GroupKind()] = w.wave
		}
		delete(present.empty, w.kind.GroupKind())
	}
}

// noteRead notes whether something of a kind was there when it was read. Where there was nothing, the kind holds up no other wave although it
// cannot be read any more: what was removed since may be what served it.
func (o *ownerState) noteRead(at remote.Session, kind schema.GroupKind, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	present := &o.partLocked(at.Name()).present
	if present.empty == nil || present.emptyIn != at.Life() || len(present.empty) >= record.MostKinds {
		present.empty, present.emptyIn = map[schema.GroupKind]bool{}, at.Life()
	}
	delete(present.empty, kind)
	if !some { // the kind may be part of a longer text, which is not to be kept
		present.empty[schema.GroupKind{Group: strings.Clone(kind.Group), Kind: strings.Clone(kind.Kind)}] = true
	}
}

// lastWaveOf returns the last wave in which a cluster may have something of these kinds, noWave if there are none. Where nothing of a kind was
// written since the program began, it may be of any wave if others say theirs.
func (o *ownerState) lastWaveOf(at remote.Session, kinds []schema.GroupKind, others []dependent) wave {
	o.mu.Lock()
	defer o.mu.Unlock()
	present := &o.partLocked(at.Name()).present
	saysWave := func(d dependent) bool { _, says := d.obj.GetAnnotations()[WaveAnnotation]; return says }
	last := noWave
	for _, kind := range kinds {
		w, known := present.waves[kind]
		switch {
		case present.emptyIn == at.Life() && present.empty[kind] && time.Since(present.late[kind]) >= mostLate:
			continue
		case !known && slices.ContainsFunc(others, saysWave):
			return math.MaxInt64
		case !known:
			w = usualWave(kind)
		}
		last = max(last, w)
	}
	return last
}

// sequence is how far the waves of a cluster have come.
type sequence struct {
	known    wave // after it, something may be missing that belongs to an earlier wave
	last     wave
	wave     wave  // of what was applied last
	missing  error // why the next wave must not begin
	everyone bool  // is to be ready, also of the last wave
	unready  error // why an object is not ready: the first that has failed, or else the first of all
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

// awaits returns what an object waits for, nil if it does not. What is not written waits for nothing: that is so of what is suspended, and, but for
// earlier waves, of what cannot be desired.
func (s *sequence) awaits(w wanted) error {
	switch before := s.before(w.wave); {
	case w.Suspend:
		return nil
	case before != nil, w.err != nil:
		return before
	default:
		return s.lacking[w.obj.GetNamespace()]
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
		if s.unready == nil || errors.Is(why, errStalled) && !errors.Is(s.unready, errStalled) {
			s.unready = why
		}
	case why != nil && !errors.Is(why, ErrWaiting): // the error is told where it belongs
		why = fmt.Errorf("%s of %s is not as desired: %w", w.kind.Describe(w.obj), at, ErrWaiting)
	}
	s.missing = cmp.Or(s.missing, why)
}

// lastFirst divides dependents that are to be removed into waves, the last first. Those that wait may come before what could not be read: an
// operator finishes what it looks after.
func (p *placement) lastFirst(all []dependent) (waves [][]dependent, wait []dependent) {
	kinds := slices.AppendSeq(slices.Clone(p.unread), maps.Keys(p.unasked))
	unread := p.o.lastWaveOf(p.at, kinds, all)
	of := map[wave][]dependent{}
	for _, d := range all {
		w, _ := waveOf(d.GroupKind(), d.obj) // what cannot be read was refused before
		if remote.IsCreated(d.Kind, d.obj) { // it goes only if it is empty, and what the owner has in it may be of the same wave
			w = firstWave
		}
		if w >= unread {
			of[w] = append(of[w], d)
		} else {
			wait = append(wait, d)
		}
	}
	for _, w := range slices.Backward(slices.Sorted(maps.Keys(of))) {
		waves = append(waves, of[w])
	}
	return waves, wait
}

// noteUnread notes kinds that could not be read, unless it is known that the owner has nothing of them.
func (p *placement) noteUnread(kinds ...remote.Kind) {
	for _, k := range kinds {
		if !p.isKnownToLack(k) {
			p.unread = append(p.unread, k.GroupKind())
		}
	}
}

// whyUnread returns why dependents wait for what could not be read.
func (p *placement) whyUnread() error {
	if len(p.unread) > 0 {
		return fmt.Errorf("%w: %s of %s cannot be read, and may be of a later wave", ErrWaiting, p.unread[0], p.at)
	}
	return errUnlooked
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
