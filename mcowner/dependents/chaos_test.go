package dependents_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestTwoKillsLeaveADependentForEachOwner: 200 owners are created at once, and the controller is killed twice meanwhile.
func TestTwoKillsLeaveADependentForEachOwner(t *testing.T) {
	t.Parallel()
	const owners = 200
	w := newWorld(t, 2)
	count := func() int { return len(w.list(w.Members[0])) + len(w.list(w.Members[1])) }
	p := w.run(w.spread())
	var group errgroup.Group
	group.SetLimit(8)
	for i := range owners {
		group.Go(func() error {
			owner := w.owner(fmt.Sprint("a", i), w.Members[i%2].Name)
			return w.Local.Client().Create(t.Context(), owner)
		})
	}
	for _, most := range []int{30, 100} {
		eventually(t, fmt.Sprint(most, " dependents are there"), func() bool { return count() >= most })
		p.kill()
		t.Logf("killed with %d dependents", count())
		p = w.run(w.spread())
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each owner has its dependent", func() bool { return count() == owners })
	for _, cp := range w.Members {
		for _, cm := range w.list(cp) {
			controller, ok := mcowner.ControllerOf(&cm, mcowner.ByName(fleet.ClusterName(cp.Name)))
			owner := w.get(w.Local, controller.Name)
			if !ok || owner == nil || owner.UID != controller.UID || cm.Name != copyOf(owner.Name) || targetsOf(owner)[0] != controller.Dependent.Cluster {
				t.Errorf("%s of %s belongs to %v", cm.Name, cp.Name, controller)
			}
		}
	}
}

const (
	// chaosEnv is how long the faults go on, and chaosSeedEnv which ones, as a run before has logged it.
	chaosEnv, chaosSeedEnv = "CHAOS", "CHAOS_SEED"
	chaosDefault           = 15 * time.Second
)

// TestChaos: owners are created, changed, deleted and stripped at random, while members and the controller fail. At last all
// is repaired. Then every owner has its dependents, no dependent is left of an owner that is gone, and nothing was touched
// that belongs to nobody. Dependents of owners that nobody has changed were never created anew, and orphans live.
func TestChaos(t *testing.T) {
	t.Parallel()
	length, seed := chaosDefault, uint64(time.Now().UnixNano())
	var err error
	if value := os.Getenv(chaosEnv); value != "" {
		if length, err = time.ParseDuration(value); err != nil {
			t.Fatalf("%s: %v", chaosEnv, err)
		}
	}
	if value := os.Getenv(chaosSeedEnv); value != "" {
		if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			t.Fatalf("%s: %v", chaosSeedEnv, err)
		}
	}
	t.Logf("the seed is %s=%d", chaosSeedEnv, seed)

	h := newHistory(t, seed)
	h.start()
	h.beginSteadily()
	steps := 0
	for end := time.Now().Add(length); time.Now().Before(end); steps++ {
		h.step()
		<-time.After(time.Duration(h.rng.IntN(100)) * time.Millisecond)
	}
	h.repair()
	h.partAll() // what is left of them, so that there are orphans in each run
	t.Logf("%d steps: %v", steps, h.done)
	repaired, wrong := time.Now(), ""
	defer func() {
		if t.Failed() {
			t.Logf("at last: %s", wrong)
		}
	}()
	eventuallyWithin(t, 2*time.Minute, "all is as it should be", func() bool {
		if now := h.wrong(); now != wrong {
			wrong = now
			t.Logf("after %s: %s", time.Since(repaired).Round(10*time.Millisecond), wrong)
		}
		return wrong == ""
	})
	h.unharmedAll()
}

// history is what happens to a world. Nothing of it is shared with other goroutines but planes.
type history struct {
	*world
	rng     *rand.Rand
	release bool
	p       *process
	mu      sync.Mutex // guards down
	down    map[*mctest.ControlPlane]string
	left    map[*mctest.ControlPlane]bool  // removed from the fleet
	foreign map[location]*corev1.ConfigMap // objects that belong to nobody, as they were left
	steady  map[location]*corev1.ConfigMap // dependents of owners that nobody changes, as they were at first
	parting map[location]*corev1.ConfigMap // dependents of owners that are deleted, and leave them as orphans
	done    map[string]int
}

// beginSteadily creates owners that stay as they are, and such as are deleted once, and waits for their dependents.
func (h *history) beginSteadily() {
	h.steady, h.parting = map[location]*corev1.ConfigMap{}, map[location]*corev1.ConfigMap{}
	for i, to := range h.Members {
		for _, home := range []*mctest.ControlPlane{h.Local, h.Members[0]} {
			steady, parting := h.owner(fmt.Sprint("steady", i), to.Name), h.owner(fmt.Sprint("parting", i), to.Name)
			parting.Annotations[dependents.DeletionPolicyAnnotation] = string(metav1.DeletePropagationOrphan)
			h.create(home, steady)
			h.create(home, parting)
			for owner, all := range map[string]map[location]*corev1.ConfigMap{steady.Name: h.steady, parting.Name: h.parting} {
				at := location{to, dependentOf(h.originName(home), owner)}
				eventually(h.t, at.name+" is there", func() bool {
					all[at] = h.get(at.cp, at.name)
					return all[at] != nil
				})
			}
		}
	}
}

// part deletes an owner whose dependents are to stay, however it is deleted.
func (h *history) part(home *mctest.ControlPlane, i int) {
	if owner := h.get(home, fmt.Sprint("parting", i)); owner != nil {
		h.try(home.Client().Delete(h.t.Context(), owner, h.propagation()))
	}
}

func (h *history) partOne() {
	home := h.Local
	if h.rng.IntN(2) == 0 && !h.isDown(h.Members[0]) {
		home = h.Members[0]
	}
	h.part(home, h.rng.IntN(len(h.Members)))
}

func (h *history) partAll() {
	for i := range h.Members {
		h.part(h.Local, i)
		h.part(h.Members[0], i)
	}
}

// propagation returns any of the ways to delete an owner.
func (h *history) propagation() client.PropagationPolicy {
	all := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	return client.PropagationPolicy(all[h.rng.IntN(len(all))])
}

// isSpared reports whether a dependent is one that nobody but the controller may delete or release.
func (h *history) isSpared(at location) bool { return h.steady[at] != nil || h.parting[at] != nil }

// unharmedAll fails the test if a dependent of an owner that nobody has changed, or that has left it as an orphan, is not
// the one that it was.
func (h *history) unharmedAll() {
	h.t.Helper()
	for _, all := range []map[location]*corev1.ConfigMap{h.steady, h.parting} {
		for at, before := range all {
			now := h.get(at.cp, at.name)
			if now == nil || now.UID != before.UID || now.DeletionTimestamp != nil {
				h.t.Errorf("%s of %s is not the one that it was", at.name, at.cp.Name)
			}
		}
	}
}

// location is a name in a cluster.
type location struct {
	cp   *mctest.ControlPlane
	name string
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{
		world: newWorld(t, 3), rng: rand.New(rand.NewPCG(seed, 0)),
		down: map[*mctest.ControlPlane]string{}, left: map[*mctest.ControlPlane]bool{},
		foreign: map[location]*corev1.ConfigMap{}, done: map[string]int{},
	}
	h.probeTimeout = 500 * time.Millisecond // members that are frozen for a moment are to become Unreachable, too
	h.release = h.rng.IntN(2) == 0
	t.Logf("clusters that are not in the fleet are released: %v", h.release)
	h.collectGarbage()
	return h
}

// start starts the program.
func (h *history) start() {
	r := h.spread()
	r.OwnersIn = mcowner.Clusters{Local: true, Members: everywhere}
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		origin, _ := mcreconcile.ClusterNameFrom(ctx)
		return []client.Object{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: dependentOf(string(origin), owner.Name)},
			Data:       map[string]string{"value": owner.Data["value"]},
		}}, nil
	}
	r.StateNamespace = h.ns
	r.Timeout, r.Sweep.Interval = 2*time.Second, 300*time.Millisecond
	if h.release {
		r.ReleaseAfter = 500 * time.Millisecond
	}
	all := h.Members
	h.Members = nil
	for _, cp := range all {
		if !h.left[cp] {
			h.Members = append(h.Members, cp)
		}
	}
	h.p = h.run(r)
	h.Members = all
}

func dependentOf(origin, owner string) string { return mcowner.UniqueName(40, origin, owner) }

// originName is the name in the fleet of a cluster that has owners.
func (h *history) originName(cp *mctest.ControlPlane) string {
	if cp == h.Local {
		return ""
	}
	return cp.Name
}

// collectGarbage takes the finalizers that ask for what the garbage collector does, as that would.
func (h *history) collectGarbage() {
	ctx, stop := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	for _, cp := range append([]*mctest.ControlPlane{h.Local}, h.Members...) {
		running.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				select {
				case <-tick.C:
					h.collectGarbageOf(ctx, cp)
				case <-ctx.Done():
				}
			}
		})
	}
	h.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

func (h *history) collectGarbageOf(ctx context.Context, cp *mctest.ControlPlane) {
	if h.isDown(cp) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	list := &corev1.ConfigMapList{}
	if cp.Client().List(ctx, list, client.InNamespace(h.ns)) != nil {
		return // next time
	}
	for _, cm := range list.Items {
		before := cm.DeepCopy()
		cm.Finalizers = slices.DeleteFunc(cm.Finalizers, func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		if cm.DeletionTimestamp != nil && len(cm.Finalizers) < len(before.Finalizers) {
			_ = cp.Client().Patch(ctx, &cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // else next time
		}
	}
}

func (h *history) isDown(cp *mctest.ControlPlane) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down[cp] != ""
}

func (h *history) setDown(cp *mctest.ControlPlane, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down[cp] = how
}

// step has something happen.
func (h *history) step() {
	type deed struct {
		name   string
		weight int
		do     func()
	}
	deeds := []deed{
		{"create", 25, h.createOwner},
		{"change", 10, func() { h.onOwner(func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"value": h.value()} }) }},
		{"retarget", 10, func() { h.onOwner(func(cm *corev1.ConfigMap) { cm.Annotations["to"] = h.targets() }) }},
		{"delete", 12, func() { h.deleteOwner(false, false) }},
		{"strip and delete", 6, func() { h.deleteOwner(true, false) }},
		{"recreate", 6, func() { h.deleteOwner(true, true) }},
		{"damage the record", 2, func() {
			h.onOwner(func(cm *corev1.ConfigMap) {
				maps.DeleteFunc(cm.Annotations, func(key, _ string) bool { return strings.HasSuffix(key, "/placed-in") })
			})
		}},
		{"drift", 6, func() { h.onDependent(h.drift) }},
		{"delete a dependent", 6, func() { h.onDependent(h.deleteDependent) }},
		{"release a dependent", 4, func() { h.onDependent(h.releaseDependent) }},
		{"delete an owner that leaves orphans", 2, h.partOne},
		{"create a foreign object", 4, h.createForeign},
		{"stop or start", 4, h.toggleStopped},
		{"freeze or thaw", 4, h.toggleFrozen},
		{"leave or join", 4, h.toggleMember},
		{"kill", 3, func() {
			h.p.kill()
			h.start()
		}},
	}
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	n := h.rng.IntN(total)
	for _, d := range deeds {
		if n -= d.weight; n < 0 {
			h.done[d.name]++
			d.do()
			return
		}
	}
}

func (h *history) value() string { return strconv.Itoa(h.rng.IntN(1000)) }

func (h *history) targets() string {
	var to []string
	for _, cp := range h.Members {
		if h.rng.IntN(2) == 0 {
			to = append(to, cp.Name)
		}
	}
	return strings.Join(to, ",")
}

// ownerLocation returns a location for an owner in a cluster that can be reached.
func (h *history) ownerLocation() location {
	p := location{h.Local, fmt.Sprint("o", h.rng.IntN(6))}
	if h.rng.IntN(3) == 0 && !h.isDown(h.Members[0]) {
		p.cp = h.Members[0]
	}
	return p
}

func (h *history) createOwner() {
	p := h.ownerLocation()
	owner := h.owner(p.name, h.targets())
	owner.Data["value"] = h.value()
	h.try(p.cp.Client().Create(h.t.Context(), owner))
}

// try fails the test on errors that are none of the history's making.
func (h *history) try(err error) bool {
	h.t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.t.Fatal(err)
	}
	return err == nil
}

// patch changes an object as it is now.
func (h *history) patch(cp *mctest.ControlPlane, cm *corev1.ConfigMap, change func(*corev1.ConfigMap)) bool {
	h.t.Helper()
	before := cm.DeepCopy()
	change(cm)
	return h.try(cp.Client().Patch(h.t.Context(), cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

func (h *history) onOwner(change func(*corev1.ConfigMap)) {
	p := h.ownerLocation()
	if owner := h.get(p.cp, p.name); owner != nil {
		h.patch(p.cp, owner, change)
	}
}

func (h *history) deleteOwner(strip, recreate bool) {
	p := h.ownerLocation()
	owner := h.get(p.cp, p.name)
	if owner == nil {
		return
	}
	if strip && !h.patch(p.cp, owner, func(cm *corev1.ConfigMap) { cm.Finalizers = nil }) {
		return
	}
	policy := h.propagation()
	if strip {
		policy = client.PropagationPolicy(metav1.DeletePropagationBackground)
	}
	if h.try(p.cp.Client().Delete(h.t.Context(), owner, policy)) && recreate {
		h.try(p.cp.Client().Create(h.t.Context(), h.owner(p.name, h.targets())))
	}
}

// onDependent does something with a dependent in a cluster that can be reached.
func (h *history) onDependent(do func(*mctest.ControlPlane, *corev1.ConfigMap)) {
	cp := h.Members[h.rng.IntN(len(h.Members))]
	if h.isDown(cp) {
		return
	}
	all := slices.DeleteFunc(h.list(cp), func(cm corev1.ConfigMap) bool { return h.isSpared(location{cp, cm.Name}) })
	if len(all) > 0 {
		do(cp, &all[h.rng.IntN(len(all))])
	}
}

func (h *history) drift(cp *mctest.ControlPlane, cm *corev1.ConfigMap) {
	h.patch(cp, cm, func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"value": "drifted"} })
}

func (h *history) deleteDependent(cp *mctest.ControlPlane, cm *corev1.ConfigMap) {
	h.try(cp.Client().Delete(h.t.Context(), cm))
}

// releaseDependent takes the reference from an object. From then on it belongs to nobody.
func (h *history) releaseDependent(cp *mctest.ControlPlane, cm *corev1.ConfigMap) {
	if cm.DeletionTimestamp == nil && h.patch(cp, cm, func(cm *corev1.ConfigMap) { cm.Annotations, cm.Labels = nil, nil }) {
		h.foreign[location{cp, cm.Name}] = cm
	}
}

func (h *history) createForeign() {
	cp := h.Members[h.rng.IntN(len(h.Members))]
	if h.isDown(cp) {
		return
	}
	owner := h.ownerLocation()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: dependentOf(h.originName(owner.cp), owner.name)}}
	if h.rng.IntN(2) == 0 {
		cm.Data = map[string]string{"value": "foreign"}
	}
	if h.try(cp.Client().Create(h.t.Context(), cm)) {
		h.foreign[location{cp, cm.Name}] = cm
	}
}

func (h *history) toggleStopped() {
	switch cp := h.Members[h.rng.IntN(len(h.Members))]; h.down[cp] {
	case "":
		h.setDown(cp, "stopped")
		cp.Stop(h.t)
	case "stopped":
		cp.Restart(h.t)
		h.setDown(cp, "")
	}
}

func (h *history) toggleFrozen() {
	switch cp := h.Members[h.rng.IntN(len(h.Members))]; h.down[cp] {
	case "":
		h.setDown(cp, "frozen")
		cp.Freeze(h.t)
	case "frozen":
		cp.Thaw(h.t)
		h.setDown(cp, "")
	}
}

func (h *history) toggleMember() {
	cp := h.Members[h.rng.IntN(len(h.Members))]
	if h.left[cp] {
		h.left[cp] = false
		h.try(h.p.members.Set(h.p.member(cp)))
		return
	}
	h.left[cp] = true
	<-h.p.members.Remove(fleet.ClusterName(cp.Name))
}

// repair undoes every fault.
func (h *history) repair() {
	for _, cp := range h.Members {
		switch h.down[cp] {
		case "stopped":
			cp.Restart(h.t)
		case "frozen":
			cp.Thaw(h.t)
		}
		h.setDown(cp, "")
		if h.left[cp] {
			h.left[cp] = false
			h.try(h.p.members.Set(h.p.member(cp)))
		}
	}
	for _, cp := range h.Members {
		h.p.is(cp, fleet.Ready)
	}
}

// wrong says what is not as it should be.
func (h *history) wrong() string {
	wanted := map[location]*corev1.ConfigMap{} // the owner
	for _, cp := range []*mctest.ControlPlane{h.Local, h.Members[0]} {
		all := &corev1.ConfigMapList{}
		if err := cp.Client().List(h.t.Context(), all, client.InNamespace(h.ns)); err != nil {
			return err.Error()
		}
		for _, owner := range all.Items {
			if _, is := owner.Annotations["to"]; !is {
				continue
			}
			if owner.DeletionTimestamp != nil {
				return fmt.Sprintf("owner %s of %s is still being deleted, with the finalizers %v", owner.Name, cp.Name, owner.Finalizers)
			}
			for _, to := range targetsOf(&owner) {
				wanted[location{h.plane(to), dependentOf(h.originName(cp), owner.Name)}] = &owner
			}
		}
	}
	for _, cp := range h.Members {
		for _, cm := range h.list(cp) {
			if wrong := wrongDependent(cp, &cm, wanted[location{cp, cm.Name}]); wrong != "" {
				return wrong
			}
			delete(wanted, location{cp, cm.Name})
		}
	}
	for p, owner := range wanted {
		if cm := h.get(p.cp, p.name); cm == nil {
			return fmt.Sprintf("owner %s lacks %s in %s", owner.Name, p.name, p.cp.Name)
		}
		// The object has no reference: it is foreign, or was left as an orphan.
	}
	for p, before := range h.foreign {
		if diff := cmp.Diff(before, h.get(p.cp, p.name)); diff != "" {
			h.t.Fatalf("%s of %s belonged to nobody, and was touched (-before, +after):\n%s", p.name, p.cp.Name, diff)
		}
	}
	return ""
}

func wrongDependent(cp *mctest.ControlPlane, cm, owner *corev1.ConfigMap) string {
	controller, ok := mcowner.ControllerOf(cm, mcowner.ByName(fleet.ClusterName(cp.Name)))
	switch {
	case !ok:
		return fmt.Sprintf("%s of %s has the fleet's label and no controller", cm.Name, cp.Name)
	case owner == nil:
		return fmt.Sprintf("%s of %s is an orphan of %s", cm.Name, cp.Name, controller)
	case owner.UID != controller.UID:
		return fmt.Sprintf("%s of %s is of an owner with another UID", cm.Name, cp.Name)
	case cm.Data["value"] != owner.Data["value"]:
		return fmt.Sprintf("%s of %s has the value %q, its owner %q", cm.Name, cp.Name, cm.Data["value"], owner.Data["value"])
	default:
		return ""
	}
}

func (h *history) plane(name mcreconcile.ClusterName) *mctest.ControlPlane {
	i := slices.IndexFunc(h.Members, func(cp *mctest.ControlPlane) bool { return cp.Name == string(name) })
	return h.Members[i]
}
