package fleet

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAnEngagementThatIsOverIsForgotten although there is a kind that cannot be listed in any that took its place.
func TestAnEngagementThatIsOverIsForgotten(t *testing.T) {
	f := running(t, Options{})
	cfg := pool.Start(t, mctest.Options{}).Local.AddUser(t, "of-namespaces", mayAsk)
	var engagements []weak.Pointer[kinds]
	for n := range 4 {
		with := rest.CopyConfig(cfg)
		with.UserAgent = fmt.Sprint(n) // no credential, so that the member is connected anew
		if err := f.set(Member{Name: "a", Config: with}); err != nil {
			t.Fatal(err)
		}
		mustBecome(func() bool {
			e, err := f.Engagement("a")
			if err != nil || e.cluster.GetConfig().UserAgent != with.UserAgent {
				return false
			}
			engagements = append(engagements, weak.Make(e.kinds))
			i, err := e.Cluster().GetCache().GetInformer(t.Context(), &corev1.Secret{}, cache.BlockUntilSynced(false))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
				t.Fatal(err)
			}
			return true
		})
	}
	mustBecome(func() bool { // but for the last
		runtime.GC()
		left := 0
		for _, e := range engagements {
			if e.Value() != nil {
				left++
			}
		}
		return left == 1
	})
}
