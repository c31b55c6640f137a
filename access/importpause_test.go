package access

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// TestAnImportIsTriedAgainSoon: within 5 seconds where it has not worked for a minute, and ever more rarely later.
func TestAnImportIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	why := &Error{v1alpha1.ReasonServiceAccountNotFound, "there is none", nil}
	for _, tc := range []struct{ missing, least, most time.Duration }{
		{0, time.Second, 2 * time.Second},
		{time.Minute, 3 * time.Second, 5 * time.Second},
		{2 * time.Minute, 7 * time.Second, 10 * time.Second},
		{time.Hour, importLatest, 20 * time.Second},
	} {
		i := &v1alpha1.ServiceAccountImport{}
		importNotReady(i, why)
		ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady)
		ready.LastTransitionTime = metav1.NewTime(time.Now().Add(-tc.missing))
		if pause := importNotReady(i, why); pause < tc.least || pause > tc.most {
			t.Errorf("after %s the pause is %s, want %s to %s", tc.missing, pause, tc.least, tc.most)
		}
	}
}
