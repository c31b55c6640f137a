package dependents

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestWhichOwnersAMemberThatLeavesDoesNotWaitFor: those that leave all as it is there, and whose record cannot be stored.
func TestWhichOwnersAMemberThatLeavesDoesNotWaitFor(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		policy LeavePolicy
		plan   plan
		told   error // why the record cannot be stored
		goes   bool  // the owner is deleted since it was planned
		want   bool
	}{
		"its record is stored":          {},
		"it cannot be":                  {told: refused, want: true},
		"they are to be released":       {told: refused, policy: LeaveReleased},
		"it is let go with that":        {told: refused, plan: plan{mode: retiring, propagation: metav1.DeletePropagationOrphan}},
		"it is let go, and all is left": {told: refused, plan: plan{mode: retiring}, want: true},
		"it is being deleted":           {told: refused, plan: plan{mode: finishing}},
		"it is deleted now":             {told: refused, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{onMemberLeaving: tc.policy}, &tc.plan, "a")
			if tc.goes {
				going := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "2", DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
				a.o.isRead(unplanned{owner: going, ref: mcowner.Reference{UID: "1"}})
			}
			a.o.tellRecord(tc.told)
			v, _ := a.o.in("a")
			if got := a.engine.letsGo(a.o, v); got != tc.want {
				t.Errorf("it lets the member go: %t", got)
			}
		})
	}
}
