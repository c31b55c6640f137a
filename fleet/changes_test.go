package fleet

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// describe reports a member that needs no cluster: its description is broken.
func describe(t *testing.T, f *Fleet, name ClusterName, labels map[string]string) {
	t.Helper()
	if err := f.set(Member{Name: name, Err: errors.New("broken"), Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

func TestChangesYieldsWhatIsThereAndWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "before", nil)
		ctx, cancel := context.WithCancel(t.Context())
		var got []ClusterName
		done := make(chan struct{})
		go func() {
			defer close(done)
			for change := range f.Changes(ctx) {
				got = append(got, change.Status.Name)
			}
		}()
		synctest.Wait()
		describe(t, f, "after", nil)
		synctest.Wait()
		describe(t, f, "after", nil) // the same again is no change
		synctest.Wait()
		describe(t, f, "before", map[string]string{"a": "b"})
		synctest.Wait()
		<-f.remove("after")
		synctest.Wait()
		cancel()
		<-done
		if diff := cmp.Diff([]ClusterName{"before", "after", "before", "after"}, slices.Compact(got)); diff != "" {
			t.Errorf("names (-want, +got):\n%s", diff)
		}
		if len(f.subscriptions) != 0 {
			t.Error("the loop ended and is still subscribed")
		}
	})
}

func TestChangesInQuickSuccessionAreYieldedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "a", nil)
		synctest.Wait()
		var got []ClusterName
		for change := range f.Changes(t.Context()) {
			got = append(got, change.Status.Name)
			if len(got) == 1 { // while the loop's body is busy
				for i := range 50 {
					describe(t, f, "b", map[string]string{"i": string(rune('a' + i))})
				}
				describe(t, f, "a", map[string]string{"x": "y"})
				synctest.Wait()
			}
			if len(got) == 3 {
				break
			}
		}
		slices.Sort(got[1:])
		if diff := cmp.Diff([]ClusterName{"a", "a", "b"}, got); diff != "" {
			t.Errorf("names (-want, +got):\n%s", diff)
		}
	})
}

// TestWhatWasAboutToLeaveIsToldOnceItIsGone, however quickly it went.
func TestWhatWasAboutToLeaveIsToldOnceItIsGone(t *testing.T) {
	for name, leaves := range map[string]bool{"Left": true, "Removed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := running(t, Options{})
				join(t, f, "a")
				controls(f, "one").has("a", 1)
				begun := false
				for change := range f.Changes(t.Context()) {
					if begun {
						if s := change.Status; s.State != "" || s.Leaving != leaves {
							t.Errorf("the change is %+v, want that it is gone, and was leaving: %t", s, leaves)
						}
						break
					}
					begun = true // while the loop's body is busy
					if leaves {
						leavingMember(t, f, Member{Name: "a", Cluster: f.now("a").Engagement.Cluster()})
					}
					<-f.remove("a")
				}
			})
		})
	}
}

func TestAskingForAMemberNeverGuesses(t *testing.T) {
	f := running(t, Options{})
	describe(t, f, "broken", nil)
	describe(t, f, "removed", nil)
	<-f.remove("removed")
	for name, want := range map[ClusterName]error{"broken": ErrNotReady, "removed": ErrGone, "never": ErrUnknown} {
		_, err := f.Engagement(name)
		var state *StateError
		if !errors.Is(err, want) || !errors.As(err, &state) || state.Status.Name != name {
			t.Errorf("Engagement(%s) = %v, want %v", name, err, want)
		}
	}
	describe(t, f, "removed", nil)
	if _, err := f.Engagement("removed"); !errors.Is(err, ErrNotReady) {
		t.Errorf("Engagement of a member that came back = %v, want ErrNotReady", err)
	}
}

func TestNamesOfRemovedMembersAreBounded(t *testing.T) {
	f := running(t, Options{})
	for i := range 2 * mostGoneNames {
		name := ClusterName(strconv.Itoa(i))
		describe(t, f, name, nil)
		<-f.remove(name)
	}
	if n := f.gone.Len(); n != mostGoneNames {
		t.Errorf("%d names are remembered, want %d", n, mostGoneNames)
	}
}

// TestNewsThatChangeNoAccessAreTold: followers show labels, and when credentials expire.
func TestNewsThatChangeNoAccessAreTold(t *testing.T) {
	cl := &existing{}
	cases := map[string]Member{
		"labels": {Name: "a", Cluster: cl, Labels: map[string]string{"x": "y"}},
		"expiry": {Name: "a", Cluster: cl, Expires: time.Now()},
	}
	for name, news := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := running(t, Options{})
				set(t, f, Member{Name: "a", Cluster: cl})
				s := f.subscribe(false)
				defer f.unsubscribe(s)
				s.next()
				set(t, f, news)
				if _, told := s.next(); !told {
					t.Error("nobody is told")
				}
				set(t, f, news)
				if _, told := s.next(); told {
					t.Error("the same again is told")
				}
			})
		})
	}
}
