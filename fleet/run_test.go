package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

var errProvider = errors.New("no such service")

// failing returns a provider that reports a member, and fails when it is told to.
func failing(fail <-chan struct{}) Provider {
	return NewProvider("failing", func(ctx context.Context, _ cluster.Cluster, members Members) error {
		if err := members.Set(Member{Name: "a", Cluster: &existing{}}); err != nil {
			return err
		}
		select {
		case <-fail:
			return errProvider
		case <-ctx.Done():
			return errProvider // nobody wants to know any more
		}
	})
}

func TestAProviderThatFailsEndsTheFleet(t *testing.T) {
	for name, tc := range map[string]struct {
		heeds bool
		took  time.Duration
	}{
		"WorkEnds":  {true, 0},
		"WorkHangs": {false, endPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fail, ended := make(chan struct{}), make(chan error, 1)
				f := New(Options{})
				go func() { ended <- f.Run(t.Context(), nil, failing(fail)) }()
				synctest.Wait()
				e, err := f.Engagement("a")
				if err != nil {
					t.Fatal(err)
				}
				joined, leave, err := e.Join(t.Context(), named("a reconcile"))
				if err != nil {
					t.Fatal(err)
				}
				if tc.heeds {
					context.AfterFunc(joined, leave)
				}
				begin := time.Now()
				close(fail)
				err = <-ended
				if !errors.Is(err, errProvider) || !strings.Contains(fmt.Sprint(err), `the provider "failing"`) {
					t.Errorf("Run() = %v, want the provider's error, and its name", err)
				}
				if strings.Contains(fmt.Sprint(err), `not drained after 30s, such as [a]`) == tc.heeds {
					t.Errorf("Run() = %v, want that it names a member that is not drained: %t", err, !tc.heeds)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("Run() returned after %v, want %v", took, tc.took)
				}
				leave()
				synctest.Wait()
				if _, err := f.Engagement("a"); err == nil || joined.Err() == nil {
					t.Errorf("the member is still engaged, or its work goes on: %v", err)
				}
			})
		})
	}
}

func TestTheEndOfTheFleetIsNoFailureOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f := New(Options{})
		go func() { ended <- f.Run(ctx, nil, failing(nil)) }()
		synctest.Wait()
		if err := f.Run(t.Context(), nil, nil); err == nil {
			t.Error("the fleet was run twice")
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
		if err := (members{f}).Set(Member{Name: "b", Cluster: &existing{}}); !errors.Is(err, ErrStopped) {
			t.Errorf("Set() = %v after the end, want ErrStopped", err)
		}
	})
}

// TestAConfigThatCannotBePreparedKeepsItsMemberAway: and it is connected as soon as it can be.
func TestAConfigThatCannotBePreparedKeepsItsMemberAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var proxy atomic.Bool
		f := running(t, Options{RESTConfig: func(Member, *rest.Config) error {
			if !proxy.Load() {
				return errors.New("there is no proxy for it")
			}
			return nil
		}})
		set(t, f, Member{Name: "a", Config: &rest.Config{Host: "https://a.test", Transport: stuck{}}})
		s := status(t, f, "a")
		if s.State != Connecting || !strings.Contains(s.Message, "there is no proxy for it") {
			t.Errorf("the status is %+v, want that it says why", s)
		}
		proxy.Store(true)
		<-time.After(time.Minute)
		if s := status(t, f, "a"); !strings.Contains(s.Message, "no way") {
			t.Errorf("the status is %+v, want that the member is dialed", s)
		}
	})
}

// TestAMemberThatIsDrainedSaysWhatRuns: whoever waits for its end sees what keeps it.
func TestAMemberThatIsDrainedSaysWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		_, leave, err := join(t, f, "a").Join(t.Context(), named("the reconcile of ns/a"))
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		f.remove("a")
		if s := status(t, f, "a"); s.State != Draining || s.Message != "the reconcile of ns/a still runs" {
			t.Errorf("the status is %+v, want a message that names what runs", s)
		}
	})
}
