package dependents

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSweepsOfManyClustersFindKindsOnce, and soon those that are new.
func TestSweepsOfManyClustersFindKindsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s sweptKinds
		reads := 0
		find := func() moreKinds {
			reads++
			return moreKinds{noted: numberedKinds(reads)}
		}
		for range 1000 {
			if n := len(s.get(find).noted); n != 1 {
				t.Fatalf("a sweep is for %d kinds", n)
			}
		}
		<-time.After(keepKinds + 1)
		if n := len(s.get(find).noted); n != 2 || reads != 2 {
			t.Errorf("a later sweep is for %d kinds, after %d reads", n, reads)
		}
	})
}
