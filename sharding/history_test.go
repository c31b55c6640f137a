package sharding

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// history does random things to replicas.
type history struct {
	*scene
	random *rand.Rand
	clocks map[*actor]*skewed
	live   []*actor
	count  int
}

// Whatever happens to replicas, no two write to a member at once, none after one of a later epoch, and in the end each member has
// an owner. Clocks go at 0.7 to 1.3 of the true rate, and wall clocks jump.
func TestNoHistoryHasTwoOwnersOfAMember(t *testing.T) {
	t.Parallel()
	seeds, steps := 3, 12
	if testing.Short() {
		seeds = 1
	}
	if given := os.Getenv("SHARDING_HISTORIES"); given != "" { // how many, and long ones
		n, err := strconv.Atoi(given)
		if err != nil {
			t.Fatal(err)
		}
		seeds, steps = n, 60
	}
	for range seeds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) {
			t.Parallel()
			h := &history{scene: newScene(t, 30), random: rand.New(rand.NewPCG(seed, 0)), clocks: map[*actor]*skewed{}}
			h.pace = briskly()
			for name := range h.names() {
				h.charge(name, time.Duration(h.random.Int64N(int64(time.Millisecond))))
			}
			for range 3 {
				h.join()
			}
			h.becomesShared()
			for range steps {
				h.step()
				h.pause(time.Duration(h.random.Int64N(int64(h.lease))))
			}
			for _, a := range h.live {
				a.faults.all(pass)
			}
			if len(h.live) == 0 {
				h.join()
			}
			h.becomesShared()
			stage.Eventually(t, "nothing moves any more", func() bool {
				status := h.live[0].replica.Status()
				return len(status.Moves) == 0 && status.MembersWithoutOwner == 0 && len(status.Replicas) == len(h.live)
			})
		})
	}
}

// pause lets things happen.
func (h *history) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.t.Context().Done():
	}
}

func (h *history) join() {
	h.count++
	c := newSkewed([]float64{0.7, 1, 1.3}[h.random.IntN(3)])
	a := h.startWith(fmt.Sprint("r", h.count), c, func(o *Options) {
		o.Revision = fmt.Sprint("v", h.random.IntN(2))
		o.HandOverTimeout = h.lease
		o.Measure = h.random.IntN(2) == 0
	})
	h.clocks[a] = c
	h.live = append(h.live, a)
}

// step does one thing.
func (h *history) step() {
	if len(h.live) == 0 {
		h.join()
		return
	}
	at := h.random.IntN(len(h.live))
	a := h.live[at]
	switch what := h.random.IntN(14); what {
	case 0, 1:
		if h.log("join"); len(h.live) < 5 {
			h.join()
		}
	case 2:
		h.log("stop " + a.name)
		h.live = append(h.live[:at:at], h.live[at+1:]...)
		go a.stop()
	case 3:
		h.log("kill " + a.name)
		h.live = append(h.live[:at:at], h.live[at+1:]...)
		a.kill()
	case 4, 5, 6, 7:
		kind := fault(h.random.IntN(4) + 1)
		share := h.random.IntN(3)
		h.log(fmt.Sprint("fault ", kind, " in ", share, " of ", a.name))
		a.faults.set(func(req *http.Request) fault {
			if share == 0 || share == 1 && req.Method == http.MethodPut || share == 2 && isWatch(req) {
				return kind
			}
			return pass
		})
	case 8, 9, 10:
		h.log("heal " + a.name)
		a.faults.all(pass)
	case 11:
		by := time.Duration(h.random.Int64N(int64(4*h.lease))) - 2*h.lease
		h.log(fmt.Sprint("jump ", by, " of ", a.name))
		h.clocks[a].jump(by)
	case 12:
		h.log("delete the session of " + a.name)
		h.delete(a.replica.opts.leaseName(a.session()))
	case 13:
		if h.random.IntN(3) == 0 {
			h.log("delete the table")
			h.delete("test.table")
		}
	}
}

func (h *history) log(what string) { h.t.Log("HISTORY:", what) }

func (h *history) delete(lease string) {
	err := h.cp.Client().Delete(h.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: lease}})
	if client.IgnoreNotFound(err) != nil {
		h.t.Error(err)
	}
}
