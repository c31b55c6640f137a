package mcsource_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// existing is a cluster that a provider has made: a member with it is Ready at once.
type existing struct{ cluster.Cluster }

// GetAPIReader implements cluster.Cluster: nobody can be asked which cluster it is.
func (*existing) GetAPIReader() client.Reader { return nil }

// started is a source of one cluster. It notes what is asked of it.
type started struct {
	name    mcreconcile.ClusterName
	cluster cluster.Cluster
	fail    error
	ctx     context.Context // what it was started on
	over    chan struct{}   // Wait returns when it is closed; nil for at once
	synced  chan struct{}   // WaitForSync returns when it is closed; nil for at once
	// unsynced is what WaitForSync returns.
	unsynced error
}

// Start implements source.TypedSource.
func (s *started) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	s.ctx = ctx
	return s.fail
}

// Wait is called when the source shall have ended.
func (s *started) Wait() {
	if s.over != nil {
		<-s.over
	}
}

// sources is a fleet, and a controller's source of the events of its members.
type sources struct {
	t     *testing.T
	fleet fleettest.Running
	stop  context.CancelFunc

	controller context.Context
	queue      workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	source     source.TypedSource[mcreconcile.Request]

	mu      sync.Mutex // guards what follows
	started []*started
	next    started // how the next source behaves
	refuse  error   // of the next member
	asked   int     // how often a source was asked for
	hang    map[mcreconcile.ClusterName]chan struct{}
	lines   []string // that were logged
}

// follow starts the source, for members that the selector matches. It is called within synctest.
func follow(t *testing.T, selector labels.Selector) *sources {
	t.Helper()
	return followIn(t, fleet.Options{}, selector)
}

// followIn is follow in a fleet with options.
func followIn(t *testing.T, opts fleet.Options, selector labels.Selector) *sources {
	t.Helper()
	f, end := fleettest.Run(t, opts)
	s := &sources{t: t, fleet: f}
	controller, stop := context.WithCancel(t.Context())
	s.stop = stop
	controller = log.IntoContext(controller, funcr.New(s.log, funcr.Options{}))
	q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
	src := mcsource.Fleet(s.fleet.Fleet, mcsource.Func(s.forCluster), selector)
	if text := fmt.Sprint(src); text != "fleet of func source" {
		t.Errorf("it is called %q", text)
	}
	if err := src.Start(controller, q); err != nil {
		t.Fatal(err)
	}
	s.controller, s.queue, s.source = controller, q, src
	t.Cleanup(func() {
		stop()
		end()
		q.ShutDown()
		synctest.Wait()
	})
	synctest.Wait()
	return s
}

func (s *sources) log(_, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// forCluster is the source of each member.
func (s *sources) forCluster(
	ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster,
) (source.TypedSource[mcreconcile.Request], error) {
	if in, ok := mcreconcile.ClusterNameFrom(ctx); !ok || in != name || mcreconcile.ClusterFrom(ctx) != cl {
		s.t.Errorf("the source of %q is asked for in the context of cluster %q", name, in)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if hang, ok := s.hang[name]; ok {
		s.mu.Unlock()
		<-hang
		s.mu.Lock()
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	made := s.next
	made.name, made.cluster = name, cl
	s.started = append(s.started, &made)
	return &made, nil
}

// will changes how sources behave from now on.
func (s *sources) will(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// set reports a member that is Ready at once, with a label "stage".
func (s *sources) set(name fleet.ClusterName, cl cluster.Cluster, stage string) {
	s.t.Helper()
	if err := s.fleet.Set(fleet.Member{Name: name, Cluster: cl, Labels: map[string]string{"stage": stage}}); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

// seen returns how many sources were made, how often one was asked for, and what was logged.
func (s *sources) seen() (made, asked int, lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.started), s.asked, slices.Clone(s.lines)
}

// is fails the test unless so many sources were started, and so many of them run.
func (s *sources) is(ever, run int) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, src := range s.started {
		if src.ctx.Err() == nil {
			running++
		}
	}
	if len(s.started) != ever || running != run {
		s.t.Errorf("%d sources were started, and %d run, want %d and %d", len(s.started), running, ever, run)
	}
}

// remove removes a member. The channel is closed when it is drained.
func (s *sources) remove(name fleet.ClusterName) (drained <-chan struct{}) {
	drained = s.fleet.Remove(name)
	synctest.Wait()
	return drained
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestASourceRunsWhileTheLabelsOfItsMemberMatch: they may change while the member stays engaged.
func TestASourceRunsWhileTheLabelsOfItsMemberMatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
		cl := &existing{}
		s.set("a", cl, "test")
		s.is(0, 0)
		s.set("a", cl, "prod")
		s.is(1, 1)
		src := s.started[0]
		if name, ok := mcreconcile.ClusterNameFrom(src.ctx); !ok || name != "a" || src.name != "a" || src.cluster != cluster.Cluster(cl) {
			t.Errorf("the source is of cluster %q (%q in its context), want a", src.name, name)
		}
		s.set("a", cl, "test")
		s.is(1, 0)
		s.set("a", cl, "prod")
		s.is(2, 1)
		if drained := s.remove("a"); !isClosed(drained) {
			t.Error("a source that was detached holds up its member")
		}
		s.is(2, 0)
	})
}

func TestASourceIsStartedForEachEngagement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		cl := &existing{}
		s.set("a", cl, "test")
		s.set("a", cl, "prod")
		s.is(1, 1)
		s.set("a", &existing{}, "prod")
		s.is(2, 1)
		if s.started[0].ctx.Err() == nil {
			t.Error("that of the engagement before has not ended")
		}
		if _, _, lines := s.seen(); len(lines) > 0 {
			t.Errorf("the log is %q, want nothing of sources that start at once", lines)
		}
	})
}

// TestAMemberIsDrainedWhenItsSourceHasEnded, whether the member leaves, or its labels do not match any more.
func TestAMemberIsDrainedWhenItsSourceHasEnded(t *testing.T) {
	t.Parallel()
	for _, detached := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
			s.next.over = make(chan struct{})
			cl := &existing{}
			s.set("a", cl, "prod")
			if detached {
				s.set("a", cl, "test")
			}
			drained := s.remove("a")
			s.is(1, 0)
			if isClosed(drained) {
				t.Error("the member is drained while its source still adds to the queue")
			}
			close(s.next.over)
			<-drained
		})
	}
}

// TestSourcesEndWithTheirController: and hold up no member any more.
func TestSourcesEndWithTheirController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.set("a", &existing{}, "")
		s.set("b", &existing{}, "")
		s.is(2, 2)
		s.stop()
		s.is(2, 0)
		s.set("c", &existing{}, "")
		s.is(2, 0)
		if drained := s.remove("a"); !isClosed(drained) {
			t.Error("a source that has ended holds up its member")
		}
	})
}

// TestASourceThatCannotBeStartedIsTriedAgain until it works or the engagement ends. That it fails is logged once, and so is that
// it works.
func TestASourceThatCannotBeStartedIsTriedAgain(t *testing.T) {
	t.Parallel()
	broken := errors.New("it is broken")
	ways := map[string]func(s *sources, err error){
		"Made":    func(s *sources, err error) { s.refuse = err },
		"Started": func(s *sources, err error) { s.next.fail = err },
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := follow(t, nil)
				s.will(func() { fail(s, broken) })
				s.set("a", &existing{}, "")
				s.set("b", &existing{}, "")
				wait(t, time.Minute)
				ever, asked, lines := s.seen()
				if asked < 10 {
					t.Errorf("the sources of two members were asked for %d times in a minute", asked)
				}
				if len(lines) != 2 || !strings.Contains(lines[0], `"cluster"="a"`) || !strings.Contains(lines[0], "it is broken") {
					t.Errorf("the log is %q, want why, once for each cluster", lines)
				}
				s.is(ever, 0)
				<-s.remove("b")
				ever, _, _ = s.seen()
				s.will(func() { fail(s, nil) })
				wait(t, 10*time.Second)
				s.is(ever+1, 1)
				_, asked, lines = s.seen()
				if len(lines) != 3 || !strings.Contains(lines[2], "The source has started") || !strings.Contains(lines[2], `"cluster"="a"`) {
					t.Errorf("the log is %q, want that it works", lines)
				}
				<-s.remove("a")
				wait(t, time.Minute)
				if _, now, _ := s.seen(); now != asked {
					t.Error("the source of a member that has left is asked for")
				}
			})
		})
	}
}

// TestASourceThatCanNeverStartIsNotTriedAgain before the member is engaged anew. Nothing is left of the attempt.
func TestASourceThatCanNeverStartIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Terminal":    fmt.Errorf("asking the catalog: %w", reconcile.TerminalError(errors.New("it is broken"))),
		"NotInScheme": runtime.NewNotRegisteredErrForType("a scheme", reflect.TypeFor[existing]()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := follow(t, nil)
				s.next.fail = err
				s.set("a", &existing{}, "")
				wait(t, time.Hour)
				ever, asked, lines := s.seen()
				if asked != 1 || len(lines) != 1 || !strings.Contains(lines[0], `"msg"="Cannot start the source"`) {
					t.Errorf("it was asked for %d times, and the log is %q, want once each", asked, lines)
				}
				s.is(ever, 0)
				<-s.remove("a")
				s.set("a", &existing{}, "")
				wait(t, time.Hour)
				if _, asked, _ := s.seen(); asked != 2 {
					t.Errorf("it was asked for %d times, want once in each engagement", asked)
				}
			})
		})
	}
}

// TestASourceThatFailsForAnotherReasonIsLoggedAgain, but not for another number in the same reason.
func TestASourceThatFailsForAnotherReasonIsLoggedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.refuse = errors.New("port 40001 is closed")
		s.set("a", &existing{}, "")
		for _, why := range []string{"port 40002 is closed", "no route"} {
			wait(t, time.Minute)
			s.will(func() { s.refuse = errors.New(why) })
			wait(t, time.Minute)
		}
		_, _, lines := s.seen()
		if len(lines) != 2 || !strings.Contains(lines[0], "40001") || !strings.Contains(lines[1], "no route") {
			t.Errorf("the log is %q, want two reasons", lines)
		}
	})
}

// TestASourceIsTriedAgainAsOftenAsTheFleetSays: its longest pause is the longest of the fleet.
func TestASourceIsTriedAgainAsOftenAsTheFleetSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followIn(t, fleet.Options{MaxRetryPeriod: time.Hour}, nil)
		s.refuse = errors.New("it is broken")
		s.set("a", &existing{}, "")
		wait(t, 10*time.Hour)
		if _, asked, _ := s.seen(); asked < 15 || asked > 30 {
			t.Errorf("it was asked for %d times in ten hours, want about one each hour after the first dozen", asked)
		}
	})
}

// TestASourceThatTakesLongToMakeHoldsUpItsMemberAlone: also its drain, which waits for what it may still start.
func TestASourceThatTakesLongToMakeHoldsUpItsMemberAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.hang = map[mcreconcile.ClusterName]chan struct{}{"a": make(chan struct{})}
		s.set("a", &existing{}, "")
		s.set("b", &existing{}, "")
		s.is(1, 1)
		drained := s.remove("a")
		if isClosed(drained) {
			t.Error("the member is drained while its source is being made")
		}
		close(s.hang["a"])
		<-drained
		s.is(len(s.started), 1)
	})
}

// TestWhatAnAttemptHasBegunIsOverBeforeTheNext: nothing runs twice for one engagement, and nothing is left when it is drained.
func TestWhatAnAttemptHasBegunIsOverBeforeTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.next.fail, s.next.over = errors.New("it is broken"), make(chan struct{})
		s.set("a", &existing{}, "")
		wait(t, time.Minute)
		s.is(1, 0)
		s.set("b", &existing{}, "")
		drained := s.remove("b")
		if isClosed(drained) {
			t.Error("a member is drained while what an attempt has begun still runs")
		}
		s.will(func() { s.hang = map[mcreconcile.ClusterName]chan struct{}{"c": make(chan struct{})} })
		s.set("c", &existing{}, "")
		drainedWhileBegun := s.remove("c")
		close(s.hang["c"]) // it is begun when the engagement is over
		synctest.Wait()
		if isClosed(drainedWhileBegun) {
			t.Error("a member is drained while what was begun after its end still runs")
		}
		close(s.next.over)
		<-drained
		<-drainedWhileBegun
		s.will(func() { s.next.fail, s.next.over = nil, nil })
		wait(t, 10*time.Second)
		s.is(4, 1)
	})
}

// wait lets time pass, which is that of synctest.
func wait(t *testing.T, long time.Duration) {
	t.Helper()
	<-time.After(long)
	synctest.Wait()
}
