package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	const most = 3 * time.Second
	pauses := Pauses(most)
	for n, least := range []time.Duration{First, 2 * First, 4 * First, most * 5 / 6, most * 5 / 6, most * 5 / 6} {
		if pause := pauses.Step(); pause < least || pause > min(least*6/5, most) {
			t.Errorf("pause %d is %s, want %s and up to a fifth more", n, pause, least)
		}
	}
	if pauses = Pauses(time.Millisecond); pauses.Step() > time.Millisecond {
		t.Error("the first pause is longer than the longest")
	}
}

func TestAPauseEndsWhenItIsWokenOrCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		pauses := Pauses(time.Hour)
		if !Pause(t.Context(), &pauses, nil) || time.Since(begin) < First {
			t.Error("the pause was none")
		}
		begin = time.Now()
		wake := make(chan struct{})
		close(wake)
		if !Pause(t.Context(), &pauses, wake) || time.Since(begin) != 0 {
			t.Error("the pause went on when it was woken")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if Pause(ended, &pauses, nil) || time.Since(begin) != 0 {
			t.Error("the pause went on when its context had ended")
		}
	})
}
