package composite_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/composite"
)

// hosts has the members that were reported, with their hosts.
type hosts struct {
	mu       sync.Mutex // guards what follows
	at       map[fleet.ClusterName]string
	problems map[string]string // by provider, subject and member, the reason and the message
}

func (h *hosts) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[m.Name] = m.Config.Host
	return nil
}

func (h *hosts) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	return nil, h.Set(m)
}

func (h *hosts) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.at, name)
	return nil
}

func (h *hosts) SetProblem(p fleet.Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.TrimSpace(p.Provider + ": " + p.About + " " + string(p.Member))
	if p.Reason == "" {
		delete(h.problems, key)
		return
	}
	h.problems[key] = p.Reason + ": " + p.Message
}

func (h *hosts) problemsNow() map[string]string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.problems)
}

func (h *hosts) now() map[fleet.ClusterName]string {
	synctest.Wait() // until every provider waits for news, or for its next start
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.at)
}

// running is a provider that runs in a bubble of synctest.
type running struct {
	hosts

	mu  sync.Mutex // guards log
	log []string
	end func() error
}

// start runs the provider until end is called, which returns what Run has returned.
func start(t *testing.T, p fleet.Provider) *running {
	t.Helper()
	r := &running{hosts: hosts{at: map[fleet.ClusterName]string{}, problems: map[string]string{}}}
	logger := funcr.New(func(_, line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log = append(r.log, line)
	}, funcr.Options{})
	ctx, stop := context.WithCancel(logf.IntoContext(t.Context(), logger))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, nil, &r.hosts) }()
	r.end = func() error {
		stop()
		return <-done
	}
	return r
}

// logged reports whether a line has all the parts.
func (r *running) logged(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.log, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

func (r *running) mustEnd(t *testing.T) {
	t.Helper()
	if err := r.end(); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

type names = map[fleet.ClusterName]string

func (r *running) want(t *testing.T, want names) {
	t.Helper()
	if diff := cmp.Diff(want, r.now()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// runFunc is the method Run of a provider.
type runFunc = func(ctx context.Context, local cluster.Cluster, members fleet.Members) error

// starts returns a provider that does one thing after the other, each time it is started, and the last from then on.
func starts(runs ...runFunc) fleet.Provider {
	var mu sync.Mutex
	return fleet.NewProvider("test", func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
		mu.Lock()
		run := runs[0]
		if len(runs) > 1 {
			runs = runs[1:]
		}
		mu.Unlock()
		return run(ctx, local, members)
	})
}

func fails(context.Context, cluster.Cluster, fleet.Members) error { return errors.New("no answer") }

func panics(context.Context, cluster.Cluster, fleet.Members) error {
	panic("a word that may be secret")
}

func TestAProviderThatFailsIsStartedAgainAndStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, late := newList(), newList()
		good.set(at("one", "1"))
		late.set(at("two", "2"))
		r := start(t, composite.Provider{"good": good, "late": starts(fails, panics, late.Run)})
		r.want(t, names{"good#one": "1"})
		good.set(at("one", "1b"))
		r.want(t, names{"good#one": "1b"})
		<-time.After(time.Minute)
		r.want(t, names{"good#one": "1b", "late#two": "2"})
		r.mustEnd(t)
		if !r.logged("started again", `"prefix"="late"`, "no answer") {
			t.Errorf("nothing was logged about the failure:\n%s", r.log)
		}
		if !r.logged("started again", `"prefix"="late"`, "panicked (string)") || !r.logged("stack", "composite_test.panics") {
			t.Errorf("nothing was logged about the panic:\n%s", r.log)
		}
		if r.logged("secret") || r.logged(`"prefix"="good"`) {
			t.Errorf("too much was logged:\n%s", r.log)
		}
	})
}

func TestAProviderThatFailsIsAProblemUntilItReportsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := newList()
		r := start(t, composite.Provider{"late": starts(fails, late.Run)})
		want := map[string]string{
			`composite: the provider "late"`: "ProviderFailed: its members stay as they are, and it is started again: no answer",
		}
		if diff := cmp.Diff(want, r.problemsNow()); diff != "" {
			t.Errorf("after the failure (-want +got):\n%s", diff)
		}
		<-time.After(time.Minute)
		late.set(at("two", "2"))
		if got := r.problemsNow(); len(got) > 0 {
			t.Errorf("after it has reported a member, there are %q", got)
		}
		r.mustEnd(t)
	})
}

func TestProblemsOfARunThatFailedEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		troubled := func(end error) runFunc {
			return func(_ context.Context, _ cluster.Cluster, members fleet.Members) error {
				members.SetProblem(fleet.Problem{Provider: "list", About: "line 1", Reason: "NoMember", Message: "it is empty"})
				members.SetProblem(fleet.Problem{Provider: "list", About: "line 2", Member: "m", Reason: "DuplicateName"})
				return end
			}
		}
		// What was wrong when a run ended may be mended before the next one, which then knows nothing of it.
		r := start(t, composite.Provider{"late": starts(troubled(errors.New("no answer")), newList().Run), "once": fleet.NewProvider("once", troubled(nil))})
		<-time.After(time.Minute)
		want := map[string]string{
			`composite: the provider "late"`: "ProviderFailed: its members stay as they are, and it is started again: no answer",
			"once#list: line 1":              "NoMember: it is empty", // it is not started again, so that holds
			"once#list: line 2 once#m":       "DuplicateName: ",
		}
		if diff := cmp.Diff(want, r.problemsNow()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		r.mustEnd(t)
	})
}

func TestProblemsHaveThePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		troubled := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
			members.SetProblem(fleet.Problem{Provider: "list", About: "line 1", Reason: "NoMember", Message: "it is empty"})
			members.SetProblem(fleet.Problem{Provider: "list", About: "line 2", Member: "m", Reason: "DuplicateName", Message: "m is there"})
			members.SetProblem(fleet.Problem{Provider: "list", About: "line 3", Reason: "NoMember"})
			members.SetProblem(fleet.Problem{Provider: "list", About: "line 3"})
			<-ctx.Done()
			return nil
		})
		r := start(t, composite.Provider{"": troubled, "lab": troubled})
		want := map[string]string{
			"list: line 1":           "NoMember: it is empty",
			"list: line 2 m":         "DuplicateName: m is there",
			"lab#list: line 1":       "NoMember: it is empty",
			"lab#list: line 2 lab#m": "DuplicateName: m is there",
		}
		if diff := cmp.Diff(want, r.problemsNow()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		r.mustEnd(t)
	})
}

func TestMembersOfAProviderThatFailedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, fail := newList(), make(chan struct{})
		l.set(at("stays", "1"))
		l.set(at("goes", "1"))
		r := start(t, composite.Provider{"p": starts(
			func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
				ctx, stop := context.WithCancel(ctx)
				var following sync.WaitGroup
				following.Go(func() { _ = l.Run(ctx, local, members) })
				<-fail
				stop()
				following.Wait()
				return errors.New("it was cut off")
			},
			l.Run,
		)})
		both := names{"p#stays": "1", "p#goes": "1"}
		r.want(t, both)
		close(fail)
		r.want(t, both)
		l.remove("goes")
		l.set(at("stays", "2"))
		l.set(at("comes", "2"))
		r.want(t, both)
		<-time.After(time.Minute)
		r.want(t, names{"p#stays": "2", "p#comes": "2", "p#goes": "1"}) // the new run knows nothing of "goes"
		r.mustEnd(t)
	})
}

func TestAProviderThatAlwaysFailsIsStartedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []int // in seconds
		last := time.Now()
		r := start(t, composite.Provider{"p": fleet.NewProvider("test", func(context.Context, cluster.Cluster, fleet.Members) error {
			pauses = append(pauses, int(time.Since(last)/time.Second))
			last = time.Now()
			if len(pauses) == 10 {
				<-time.After(time.Hour) // a good run, and the next failure is the first again
			}
			return errors.New("no answer")
		})})
		<-time.After(time.Hour + 20*time.Minute)
		r.mustEnd(t)
		about := func(want, got int) bool { return want <= got && got <= want+want/10 } // up to a tenth is random
		want := []int{0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 3601, 2, 4}
		if !slices.EqualFunc(want, pauses[:len(want)], about) {
			t.Errorf("there were %d seconds between the starts, want %d and up to a tenth more", pauses, want)
		}
	})
}

func TestAProviderThatHasEndedIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := start(t, composite.Provider{"p": fleet.NewProvider("test", func(context.Context, cluster.Cluster, fleet.Members) error {
			runs++
			return nil
		})})
		<-time.After(time.Hour)
		r.mustEnd(t)
		if runs != 1 {
			t.Errorf("it ran %d times", runs)
		}
	})
}

func TestTheEndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, composite.Provider{"p": fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, _ fleet.Members) error {
			<-ctx.Done()
			return ctx.Err()
		})})
		synctest.Wait()
		r.mustEnd(t)
		if r.logged() {
			t.Errorf("logged:\n%s", r.log)
		}
	})
}

func TestNamesBelongToOneProvider(t *testing.T) {
	long := fleet.ClusterName(strings.Repeat("x", fleet.MaxNameLength-len("aws#")))
	for name, tc := range map[string]struct {
		prefix string
		given  fleet.ClusterName
		want   fleet.ClusterName // empty: it is refused
		why    string
	}{
		"Prefixed":        {prefix: "aws", given: "a", want: "aws#a"},
		"WithNamespace":   {prefix: "aws", given: "team/a", want: "aws#team/a"},
		"WithSeparator":   {prefix: "aws", given: "gcp#a", want: "aws#gcp#a"},
		"Plain":           {prefix: "", given: "a", want: "a"},
		"PlainSeparator":  {prefix: "", given: "azure#a", want: "azure#a"},
		"PlainPrefix":     {prefix: "", given: "aws", want: "aws"},
		"PlainNoPrefix":   {prefix: "", given: "#a", want: "#a"},
		"OfAnother":       {prefix: "", given: "aws#a", why: `names that begin with "aws#" belong to another provider`},
		"Longest":         {prefix: "aws", given: long, want: "aws#" + long},
		"TooLong":         {prefix: "aws", given: long + "x", why: "318 bytes"},
		"Nothing":         {prefix: "aws", given: "", why: "empty name"},
		"NothingAtAll":    {prefix: "", given: "", why: "empty name"},
		"NothingButSpace": {prefix: "aws", given: " ", why: "spaces"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refusal error
				p := composite.Provider{"aws": newList(), "gcp": newList(), "": newList()}
				p[tc.prefix] = fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
					refusal = members.Set(at(tc.given, "1"))
					<-ctx.Done()
					return nil
				})
				r := start(t, p)
				want := names{}
				if tc.want != "" {
					want[tc.want] = "1"
				}
				r.want(t, want)
				r.mustEnd(t)
				switch {
				case tc.why == "" && refusal != nil:
					t.Errorf("Set() = %v", refusal)
				case tc.why != "" && (!errors.Is(refusal, fleet.ErrInvalidMember) || !strings.Contains(refusal.Error(), tc.why)):
					t.Errorf("Set() = %v, want ErrInvalidMember with %q", refusal, tc.why)
				}
			})
		})
	}
}

func TestAMemberOfAnotherProviderIsNotWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aws, plain := newList(), newList()
		aws.set(at("a", "1"))
		r := start(t, composite.Provider{"aws": aws, "": plain})
		r.want(t, names{"aws#a": "1"})
		plain.set(at("aws#a", "2"))
		r.want(t, names{"aws#a": "1"})
		plain.remove("aws#a")
		r.want(t, names{"aws#a": "1"})
		aws.remove("a")
		r.want(t, names{})
		r.mustEnd(t)
	})
}

func TestTheEndWaitsForAllProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		r := start(t, composite.Provider{"quick": newList(), "slow": fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, _ fleet.Members) error {
			<-ctx.Done()
			<-time.After(time.Minute)
			returned = true
			return nil
		})})
		r.mustEnd(t)
		if !returned {
			t.Error("Run has returned before a provider has")
		}
	})
}

// ended returns a context that has ended: what can work returns at once.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	end()
	return ctx
}

func TestACompositeThatCannotWorkIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		provider composite.Provider
		want     []string
	}{
		"NoProvider": {composite.Provider{"aws": nil}, []string{`no provider for the prefix "aws"`}},
		"Separator":  {composite.Provider{"a#b": newList()}, []string{`"a#b" has a "#"`}},
		"Space":      {composite.Provider{"a b": newList()}, []string{`"a b"`, "spaces"}},
		"All":        {composite.Provider{"a#b": nil, "a b": newList()}, []string{`no provider for the prefix "a#b"`, `has a "#"`, "spaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.provider.Run(ended(t), nil, &hosts{})
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("Run() = %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestACompositeOfNothingHasNoMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, composite.Provider(nil))
		r.want(t, names{})
		r.mustEnd(t)
	})
}

func TestMembersLeaveUnderTheirPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error, 2)
		leaving := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
			for _, name := range []fleet.ClusterName{"one", "lab#one"} {
				_, err := members.Leave(at(name, "1"))
				results <- err
			}
			<-ctx.Done()
			return nil
		})
		r := start(t, composite.Provider{"": leaving, "lab": newList()})
		r.want(t, names{"one": "1"})
		if err := <-results; err != nil {
			t.Error(err)
		}
		if err := <-results; !errors.Is(err, fleet.ErrInvalidMember) {
			t.Errorf("leaving under the prefix of another provider: %v, want that it is refused", err)
		}
		r.mustEnd(t)
		r = start(t, composite.Provider{"lab": fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
			_, err := members.Leave(at("one", "1"))
			results <- err
			<-ctx.Done()
			return nil
		})})
		r.want(t, names{"lab#one": "1"})
		if err := <-results; err != nil {
			t.Error(err)
		}
		r.mustEnd(t)
	})
}
