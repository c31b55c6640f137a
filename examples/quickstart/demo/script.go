package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// patience is how long a step may take, counted from the last reconcile.
const patience = time.Minute

// setting is where the demo takes place, and what happens there.
type setting struct {
	local    *rest.Config
	provider fleet.Provider // nil stands for the program's own
	steps    []step
	replicas *replicas // nil if the program runs in this process
	stay     string    // what is said when all has been shown and the demo goes on, "" if it ends then
	close    func() error
}

// step is one thing to see.
type step struct {
	// say announces it.
	say string
	// do begins it, and returns what comes true at its end.
	do func(ctx context.Context, s *scene) (condition, error)
	// shown is its line in the summary. If the step is timed, that says what it took.
	shown string
	timed bool
}

// condition is something that comes true for the members.
type condition struct {
	what  string
	holds func(members) bool
}

// scene is a setting while it is played.
type scene struct {
	*setting
	board  *board
	screen screen
	fleet  *fleet.Fleet // of this process, nil if it only shows what others do
	shown  []string
}

// play takes the steps, one after the other, and returns when the demo is over.
func (s *scene) play(ctx context.Context) error {
	for _, step := range s.steps {
		s.say("\n" + step.say)
		begun := time.Now()
		expected, err := step.do(ctx, s)
		if err == nil {
			err = s.wait(ctx, expected)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if step.timed {
			step.shown += " That took " + time.Since(begun).Round(100*time.Millisecond).String() + "."
		}
		s.shown = append(s.shown, step.shown)
	}
	if s.stay == "" {
		return nil
	}
	s.say("\n" + s.stay)
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != context.Canceled { //nolint:errorlint // Ctrl-C has this very cause
		return cause
	}
	return nil
}

// say says something, after all that was seen before it.
func (s *scene) say(text string) {
	rows, _ := s.board.rows()
	s.screen.show(rows)
	s.screen.say(text)
}

// wait waits until the condition holds.
func (s *scene) wait(ctx context.Context, expected condition) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	reconciles := 0
	for {
		var holds bool
		var now int
		changed := s.board.ask(func(ms members) { holds, now = expected.holds(ms), ms.reconciles() })
		if holds {
			return nil
		}
		if now != reconciles {
			reconciles = now
			timer.Reset(patience)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("waited %s in vain until %s.%s", patience, expected.what, s.complaints())
		}
	}
}

// complaints says what is wrong with members.
func (s *scene) complaints() string {
	var text strings.Builder
	s.board.ask(func(ms members) {
		for _, name := range slices.Sorted(maps.Keys(ms)) {
			if m := ms[name]; m.state != fleet.Ready || m.reason != "" {
				fmt.Fprintf(&text, " %s is %s (%s): %s.", name, m.state, cmp.Or(m.reason, "no reason given"), m.message)
			}
		}
	})
	return text.String()
}

// sumUp says what was shown.
func (s *scene) sumUp() {
	s.screen.say("")
	if len(s.shown) > 0 {
		s.screen.say("What was shown:")
	}
	for _, shown := range s.shown {
		s.screen.say("- " + shown)
	}
	rows, _ := s.board.rows()
	counts := make([]string, len(rows))
	for i, r := range rows {
		counts[i] = fmt.Sprintf("%s %d", r.name, r.reconciles)
	}
	s.screen.say("Reconciles: " + strings.Join(counts, ", ") + ".")
}

func (ms members) reconciles() (n int) {
	for _, m := range ms {
		n += m.reconciles
	}
	return n
}

// all holds when each of the conditions holds.
func all(conditions ...condition) condition {
	whats := make([]string, len(conditions))
	for i, c := range conditions {
		whats[i] = c.what
	}
	return condition{what: strings.Join(whats, ", and "), holds: func(ms members) bool {
		return !slices.ContainsFunc(conditions, func(c condition) bool { return !c.holds(ms) })
	}}
}

// is holds when the member is in the state, and nothing else is wrong with it if that is Ready.
func is(name fleet.ClusterName, state fleet.State) condition {
	return condition{what: fmt.Sprintf("%s is %s", name, state), holds: func(ms members) bool {
		m := ms[name]
		return m != nil && m.state == state && (state != fleet.Ready || m.reason == "")
	}}
}

// reconciled holds when the object was reconciled as it is given.
func reconciled(name fleet.ClusterName, obj client.Object) condition {
	key := client.ObjectKeyFromObject(obj)
	return condition{what: fmt.Sprintf("%s of %s is reconciled", key, name), holds: func(ms members) bool {
		return ms[name] != nil && ms[name].objects[key] == obj.GetResourceVersion()
	}}
}
