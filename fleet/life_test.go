package fleet

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// status returns that of a member, once nothing happens any more.
func status(t *testing.T, f *Fleet, name ClusterName) Status {
	t.Helper()
	synctest.Wait()
	s, ok := f.Status(name)
	if !ok {
		t.Errorf("%s is no member", name)
	}
	return s
}

// removing removes member "a". The channel is closed when it is drained.
func removing(t *testing.T, f *Fleet) (removed <-chan struct{}) {
	t.Helper()
	removed = f.remove("a")
	synctest.Wait()
	return removed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func set(t *testing.T, f *Fleet, m Member) {
	t.Helper()
	if err := f.set(m); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestRemoveWaitsForWorkOfAnEngagementThatWasReplaced as it does for that of the last.
func TestRemoveWaitsForWorkOfAnEngagementThatWasReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		_, leave, err := join(t, f, "a").Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		join(t, f, "a")
		removed := removing(t, f)
		if isClosed(removed) {
			t.Error("the member is removed while work of an earlier engagement runs")
		}
		if s := status(t, f, "a"); s.State != Draining || s.Engaged() || f.now("a").Engagement != nil {
			t.Errorf("it is %s, and still engaged", s.State)
		}
		leave()
		<-removed
	})
}

// TestADescriptionThatIsRepairedIsTold, also if it is the one that the member is engaged by.
func TestADescriptionThatIsRepairedIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		good := Member{Name: "a", Cluster: &existing{}}
		set(t, f, good)
		e := f.now("a").Engagement
		set(t, f, Member{Name: "a", Err: errors.New("it does not parse")})
		if s := status(t, f, "a"); s.State != Ready || s.Reason != ReasonInvalid || s.Message != "it does not parse" {
			t.Errorf("while the description is broken: %+v", s)
		}
		set(t, f, good)
		if s := status(t, f, "a"); s.State != Ready || s.Reason != "" || s.Message != "" {
			t.Errorf("after it was repaired: %+v", s)
		}
		if f.now("a").Engagement != e || e.Context().Err() != nil {
			t.Error("the member was engaged anew")
		}
	})
}

// TestAnotherErrorOfAProviderIsTold: two broken descriptions give the same access, none.
func TestAnotherErrorOfAProviderIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		set(t, f, Member{Name: "a", Err: errors.New("it does not parse")})
		begin := status(t, f, "a").Since
		<-time.After(time.Hour)
		set(t, f, Member{Name: "a", Err: errors.New("it has no server")})
		s := status(t, f, "a")
		if s.State != Pending || s.Message != "it has no server" {
			t.Errorf("it is %s: %s", s.State, s.Message)
		}
		if !s.Since.Equal(begin) {
			t.Errorf("it is Pending since %s, want since %s, when it was reported", s.Since, begin)
		}
		set(t, f, Member{Name: "a", Cluster: &existing{}})
		if s := status(t, f, "a"); s.State != Ready || !s.Since.Equal(begin.Add(time.Hour)) {
			t.Errorf("it is %s since %s, want Ready since now", s.State, s.Since)
		}
	})
}

// TestAMemberThatWasEngagedIsTriedAtOnceAgain: pauses that have grown are for one trouble, and not for the next.
func TestAMemberThatWasEngagedIsTriedAtOnceAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{RefuseDuplicates: true})
		describe := func(name ClusterName, identity string) {
			set(t, f, Member{Name: name, Cluster: &existing{}, Identity: identity})
		}
		describe("a", "1")
		describe("b", "1")
		<-time.After(time.Hour)
		if s := status(t, f, "b"); s.Reason != ReasonDuplicate || s.State != Connecting {
			t.Errorf("b is %s (%s), want that it cannot be connected", s.State, s.Reason)
		}
		describe("b", "2")
		if s := status(t, f, "b"); s.State != Ready || s.Attempts != 0 {
			t.Errorf("b is %s after %d attempts, want Ready", s.State, s.Attempts)
		}
		describe("b", "1")
		<-time.After(2 * time.Second)
		if s := status(t, f, "b"); s.Attempts < 3 {
			t.Errorf("b is connected for the %d. time after two seconds, want the third", s.Attempts)
		}
		<-time.After(time.Hour)
		if s := status(t, f, "b"); s.Attempts > 600 {
			t.Errorf("%d attempts in an hour, want one in eight seconds", s.Attempts)
		}
	})
}

// TestAMemberThatIsReportedWhileItIsDrainedComesBack, as it was reported last; unless it is removed again.
func TestAMemberThatIsReportedWhileItIsDrainedComesBack(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := running(t, Options{})
			before := join(t, f, "a")
			_, leave, err := before.Join(t.Context(), named("a reconcile"))
			if err != nil {
				t.Fatal(err)
			}
			removed := removing(t, f)
			for _, round := range []string{"1", "2"} {
				set(t, f, Member{Name: "a", Cluster: &existing{}, Labels: map[string]string{"round": round}})
			}
			if s := status(t, f, "a"); s.State != Draining || isClosed(removed) {
				t.Errorf("it is %s before the work of its engagement has ended", s.State)
			}
			if !again {
				f.remove("a")
				synctest.Wait()
			}
			leave()
			<-removed
			synctest.Wait()
			s, is := f.Status("a")
			if is != again {
				t.Fatalf("it is a member: %t, want %t", is, again)
			}
			if again && (s.State != Ready || s.Labels["round"] != "2" || f.now("a").Engagement == before) {
				t.Errorf("it came back as %+v, want Ready, as it was reported last", s)
			}
		})
	}
}

// stuck is a transport whose requests end when they are let, whatever their context, or fail at once.
type stuck struct {
	http.RoundTripper
	until chan struct{}
}

// CloseIdleConnections does nothing: there are no connections. Without it, each end of a member would be a warning in the log.
func (stuck) CloseIdleConnections() {}

// RoundTrip implements http.RoundTripper.
func (s stuck) RoundTrip(*http.Request) (*http.Response, error) {
	if s.until != nil {
		<-s.until
	}
	return nil, errors.New("no way")
}

// TestRemoveReturnsAtOnce, also if what connects does not heed its context.
func TestRemoveReturnsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		until := make(chan struct{})
		set(t, f, Member{Name: "a", Config: &rest.Config{Host: "https://stuck.test", Transport: stuck{until: until}}})
		removed := removing(t, f)
		if isClosed(removed) || status(t, f, "a").State != Draining {
			t.Error("the member counts as drained while it connects")
		}
		close(until)
		<-removed
	})
}

// TestSeriesOfAServerAreGoneWithTheMember that was never engaged, or is reached elsewhere now.
func TestSeriesOfAServerAreGoneWithTheMember(t *testing.T) {
	t.Parallel()
	has := func(host string) (n int) {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					if label.GetName() == "host" && label.GetValue() == host {
						n++
					}
				}
			}
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		const first, second = "first.life.test", "second.life.test"
		set(t, f, Member{Name: "a", Config: &rest.Config{Host: "https://" + first, Transport: stuck{}}})
		if has(first) == 0 {
			t.Fatal("there are no metrics of the server, so that the test shows nothing")
		}
		set(t, f, Member{Name: "a", Config: &rest.Config{Host: "https://" + second, Transport: stuck{}}})
		if has(first) > 0 || has(second) == 0 {
			t.Errorf("%d series of the server of before, %d of that of now", has(first), has(second))
		}
		<-removing(t, f)
		if has(second) > 0 {
			t.Errorf("%d series of the server of a member that was removed", has(second))
		}
	})
}

// TestWhatIsOutdatedChangesNothing: the description is another one by the time that an attempt has begun, failed or
// worked, or a probe was answered.
func TestWhatIsOutdatedChangesNothing(t *testing.T) {
	t.Parallel()
	was, is := Member{Name: "a", Cluster: &existing{}}, Member{Name: "a", Cluster: &existing{}}
	before, e := newEngagement(t.Context(), "a"), newEngagement(t.Context(), "a")
	e.identity = "another"
	attempts := map[string]func(ctx context.Context, m *member) error{
		"Connect": func(ctx context.Context, m *member) error { return m.connect(ctx, was) },
		"Rotate":  func(ctx context.Context, m *member) error { return m.rotate(ctx, was, before) },
		"Failed":  func(_ context.Context, m *member) error { return m.failed(was, errors.New("refused")) },
		"Engaged": func(_ context.Context, m *member) error { return m.engaged(was, e) },
		"GiveUp":  func(_ context.Context, m *member) error { return m.giveUp(was, before, e) },
	}
	for name, attempt := range attempts {
		for _, withdrawn := range []bool{true, false} {
			m := newMember(New(Options{}), is)
			m.withdrawn = withdrawn
			if withdrawn {
				m.described = was
			}
			m.engagement, m.state, m.reason = before, Ready, "fine"
			err := attempt(t.Context(), m)
			if !errors.Is(err, errOutdated) {
				t.Errorf("%s (withdrawn: %t) = %v, want errOutdated", name, withdrawn, err)
			}
			if m.attempts != 0 || m.engagement != before || m.state != Ready || m.problem != (problem{}) || before.ctx.Err() != nil {
				t.Errorf("%s (withdrawn: %t) has changed the member: %+v", name, withdrawn, m.statusLocked())
			}
		}
	}
	for name, change := range map[string]func(m *member){
		"Replaced":  func(m *member) { m.engagement = e },
		"Withdrawn": func(m *member) { m.withdrawn = true },
		"Ended": func(m *member) {
			m.engagement = newEngagement(m.fleet.ctx, "a")
			m.engagement.end(errRemoved)
		},
	} {
		m := newMember(New(Options{}), is)
		m.fleet.ctx = t.Context()
		m.engagement, m.state = before, Ready
		change(m)
		told := before
		if name == "Ended" {
			told = m.engagement
		}
		m.health(told, Unreachable, errors.New("refused"))
		if m.state != Ready || m.reason != "" {
			t.Errorf("%s: a probe has made it %s (%s)", name, m.state, m.reason)
		}
	}
	m := newMember(New(Options{}), is)
	m.withdrawn, m.state = true, Draining
	m.invalid(errors.New("it does not parse"))
	if m.state != Draining || m.reason != "" {
		t.Errorf("a member that was withdrawn is %s (%s)", m.state, m.reason)
	}
}
