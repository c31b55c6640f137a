package fleet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// full returns a pace whose places are all taken.
func full(t *testing.T) (p pace, leave []func()) {
	t.Helper()
	p = newPace()
	for range cap(p.places) {
		free, err := p.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, free)
	}
	return p, leave
}

// entered returns after how long there was a place.
func entered(t *testing.T, p pace) time.Duration {
	t.Helper()
	begin := time.Now()
	leave, err := p.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	return time.Since(begin)
}

func TestEachCPUHasFourPlaces(t *testing.T) {
	if n, want := cap(newPace().places), 4*runtime.GOMAXPROCS(0); n != want {
		t.Errorf("there are %d places, want %d", n, want)
	}
}

func TestAnAttemptThatEndsMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, leave := full(t)
		time.AfterFunc(time.Millisecond, leave[0])
		if took := entered(t, p); took != time.Millisecond {
			t.Errorf("there was a place after %v, want 1ms", took)
		}
	})
}

func TestSlowAttemptsMakeRoomAfterTheirHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, leave := full(t)
		if took := entered(t, p); took != headStart {
			t.Errorf("there was a place after %v, want %v", took, headStart)
		}
		for _, leave := range leave {
			leave() // they have no place to give back
		}
		if n := len(p.places); n != 0 {
			t.Errorf("%d places are taken after all have left", n)
		}
	})
}

func TestAnAttemptThatIsInterruptedWaitsForNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := full(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		outdated := errors.New("outdated")
		cancel(outdated)
		if _, err := p.enter(ctx); !errors.Is(err, outdated) {
			t.Errorf("the error is %v, want %v", err, outdated)
		}
	})
}

// TestServersThatDoNotAnswerStandInNobodysWay: a member is engaged while more of them are being connected than there are places.
func TestServersThatDoNotAnswerStandInNobodysWay(t *testing.T) {
	f := running(t, Options{ConnectTimeout: time.Hour})
	host := "https://" + mctest.Silent(t)
	for i := range 2 * cap(f.pace.places) {
		if err := f.set(Member{Name: ClusterName(fmt.Sprintf("silent-%d", i)), Config: &rest.Config{Host: host}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.set(Member{Name: "healthy", Config: pool.Start(t, mctest.Options{}).Local.Config()}); err != nil {
		t.Fatal(err)
	}
	for range f.Changes(t.Context()) { // the test's own time limit ends it
		if status, _ := f.Status("healthy"); status.State == Ready {
			break
		}
	}
}
