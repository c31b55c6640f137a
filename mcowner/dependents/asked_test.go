package dependents

import (
	"fmt"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestOwnersThatNobodyHasSeenAreRememberedUpToABound: whoever may write a dependent may name any.
func TestOwnersThatNobodyHasSeenAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for i := range 2 * mostAsked {
		req := mcreconcile.Request{ClusterName: "a"}
		req.Name = fmt.Sprint(i)
		l.ask(req, "b")
		l.ask(req, "c")
	}
	if n := len(l.asked); n != mostAsked {
		t.Errorf("%d are remembered", n)
	}
	first := mcreconcile.Request{ClusterName: "a"}
	first.Name = "0"
	if in := l.forget(first); len(in) != 2 {
		t.Errorf("the first had dependents in %v, want two clusters", in)
	}
	if l.forgetOrigin("a"); len(l.asked) > 0 {
		t.Errorf("%d are remembered of a cluster that is gone", len(l.asked))
	}
}
