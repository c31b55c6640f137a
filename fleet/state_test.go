package fleet

import (
	"errors"
	"testing"
	"time"
)

func TestAMemberIsEngagedFromReadyToDraining(t *testing.T) {
	t.Parallel()
	for _, state := range allStates() {
		if got, want := (Status{State: state}).Engaged(), state == Ready || state == Unreachable || state == Suspended; got != want {
			t.Errorf("a member that is %s is engaged: %t, want %t", state, got, want)
		}
	}
	if (Status{}).Engaged() {
		t.Error("a member that is gone is engaged")
	}
}

func TestAStateErrorSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	since := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for want, err := range map[string]*StateError{
		`cluster "a": no provider has reported this cluster`: {ErrUnknown, Status{Name: "a"}},
		`cluster "a": the cluster is not ready (Connecting since 2030-01-02T02:04:05Z)`: {
			ErrNotReady, Status{Name: "a", State: Connecting, Since: since},
		},
		`cluster "a": the cluster is not ready (Unreachable since 2030-01-02T02:04:05Z: Refused: dial tcp)`: {
			ErrNotReady, Status{Name: "a", State: Unreachable, Since: since, Reason: "Refused", Message: "dial tcp"},
		},
	} {
		if err.Error() != want || !errors.Is(err, err.Err) {
			t.Errorf("it says %q, want %q", err, want)
		}
	}
}
