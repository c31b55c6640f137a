package mcbuilder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestAControllerHasSpareGoroutinesUnlessItHasOneWorker(t *testing.T) {
	type options = mcqueue.Options[mcreconcile.Request]
	cases := map[string]struct {
		reason      string
		given, want options
		workers     int
	}{
		"Default":   {"All follows from the workers.", options{}, options{Workers: 8, Spare: 256, InFlightPerCluster: 4}, 8},
		"OneWorker": {"One worker is how people ask for one reconcile at once.", options{}, options{Workers: 1, InFlightPerCluster: 1}, 1},
		"Many":      {"There is a limit to the spare ones.", options{}, options{Workers: 100, Spare: 512, InFlightPerCluster: 50}, 100},
		"None":      {"Nobody yields if none are wanted.", options{Spare: -1}, options{Workers: 8, InFlightPerCluster: 4}, 8},
		"Given":     {"What is set holds.", options{Workers: 3, Spare: 5, InFlightPerCluster: 2}, options{Workers: 3, Spare: 5, InFlightPerCluster: 2}, 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := bounded(tc.given, tc.workers)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(options{}, "RateLimiter")); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}
