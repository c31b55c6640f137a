package dependents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

const (
	keysDomain  = controller + "." + fleetName + ".fleet-runtime.dev"
	slicesKey   = keysDomain + "/slices"
	placedInKey = keysDomain + "/placed-in"
)

// newSlicedWorld is a world whose clusters have the CRD of slices.
func newSlicedWorld(t *testing.T, members int) *world {
	t.Helper()
	return newWorldIn(t, pool.Start(t, withSlices(t, members)))
}

// withSlices are clusters that have the CRD of slices.
func withSlices(t *testing.T, members int) mctest.Options {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return mctest.Options{Clusters: members, CRDPaths: []string{"v1alpha1/crd.yaml"}, Scheme: scheme}
}

// sliced is spread with two copies, and slices that have room for two clusters.
func (w *world) sliced() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Slices = dependents.SlicesOf(1000)
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name + "-second-copy"}}), err
	}
	return r
}

// slices returns those of the namespace.
func (w *world) slices() []v1alpha1.DependentSlice { return w.slicesIn(w.Local) }

func (w *world) slicesIn(cp *mctest.ControlPlane) []v1alpha1.DependentSlice {
	w.t.Helper()
	list := &v1alpha1.DependentSliceList{}
	if err := cp.Client().List(w.t.Context(), list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// sliceVersions returns the resource versions of the slices, by name.
func (w *world) sliceVersions() map[string]string {
	w.t.Helper()
	versions := map[string]string{}
	for _, s := range w.slices() {
		versions[s.Name] = s.ResourceVersion
	}
	return versions
}

// inSlices returns what slices say of clusters, by name.
func (w *world) inSlices() map[string]v1alpha1.Cluster {
	w.t.Helper()
	all := map[string]v1alpha1.Cluster{}
	for _, s := range w.slices() {
		for _, c := range s.Clusters {
			all[c.Name] = c
		}
	}
	return all
}

// areSliced waits until slices alone say that these members have, for the owner a, what is desired, and no others have anything.
func (w *world) areSliced(members ...*mctest.ControlPlane) {
	w.t.Helper()
	eventually(w.t, "slices have what came of the members", func() bool {
		all, cm := w.inSlices(), w.get(w.Local, "a")
		_, annotated := cm.Annotations[placedInKey]
		good := !annotated && len(all) == len(members)
		for _, cp := range members {
			c := all[cp.Name]
			good = good && c.MayHaveDependents && c.Error == "" && len(c.Objects) == 2 && c.Objects[0].UID != "" && len(c.Identities) == 1
		}
		return good
	})
}

func names(members []*mctest.ControlPlane) (all []string) {
	for _, cp := range members {
		all = append(all, cp.Name)
	}
	return all
}

func TestSlicesHaveTheRecordAndWhatCameOfEachCluster(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	if n := len(w.slices()); n < 2 {
		t.Errorf("there are %d slices, and three clusters do not fit into one", n)
	}
	since := time.Now()
	eventually(t, "nothing is written for a second, and the next news are written at once", func() bool {
		if !p.isAtRest() {
			since = time.Now()
		}
		return time.Since(since) > time.Second
	})
	before := w.sliceVersions()
	unrelated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "unrelated"}}
	w.create(w.Members[1], unrelated)
	eventually(t, "the program has seen what is nobody's", func() bool { return p.knows(w.Members[1], unrelated) })
	eventually(t, "the program is at rest", p.isAtRest)
	if diff := cmp.Diff(before, w.sliceVersions()); diff != "" {
		t.Errorf("for an object that is nobody's, slices were written (-before, +after):\n%s", diff)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = names(w.Members)[0] })
	w.areSliced(w.Members[0])
	w.isGone(w.Members[1], copyOf("a"))
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(w.Members[0], copyOf("a"))
	if left := w.slices(); len(left) > 0 {
		t.Errorf("of an owner that is gone there is a slice: %+v", left[0])
	}
}

func TestAMemberThatFailsShowsInItsSliceAndNoOtherIsWritten(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	of := func(name string) v1alpha1.DependentSlice {
		all := w.slices()
		i := slices.IndexFunc(all, func(s v1alpha1.DependentSlice) bool {
			return slices.ContainsFunc(s.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == name })
		})
		return all[i]
	}
	first, last := w.Members[0].Name, w.Members[2].Name
	before := of(last)
	if of(first).Name == before.Name {
		t.Fatal("the first and the last member have the same slice")
	}
	<-p.members.Remove(fleet.ClusterName(first))
	eventually(t, "the slice says that the member is not in the fleet", func() bool { return w.inSlices()[first].Error != "" })
	if after := of(last); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the slice of another member was written: %+v, before %+v", after, before)
	}
}

// TestNothingIsCreatedBeforeItsClusterIsInASlice: whatever request of the program is the last one that gets through.
func TestNothingIsCreatedBeforeItsClusterIsInASlice(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	for i, request := range []string{
		"1 PATCH owner", "1 POST slice", "1 PATCH copy", "1 until done", "2 PATCH copy", "2 until done", "3 POST slice", "3 PATCH copy",
	} {
		targets, what, _ := strings.Cut(request, " ")
		n := int(targets[0] - '0')
		if i == 0 {
			w.create(w.Local, w.owner("a", names(w.Members[:n])...))
		} else {
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = strings.Join(names(w.Members[:n]), ",") })
		}
		w.runUntil(w.sliced(), what, n)
		noted := w.inSlices()
		for _, cp := range w.Members {
			if w.get(cp, copyOf("a")) != nil && !noted[cp.Name].MayHaveDependents {
				t.Errorf("killed after %s: %s has a dependent, and the slices say %v", request, cp.Name, noted)
			}
		}
	}
	p := w.run(w.sliced())
	w.areSliced(w.Members...)
	// The owner forgets its targets and goes while a member is away: the slices alone know of it.
	<-p.members.Remove(fleet.ClusterName(w.Members[2].Name))
	p.kill()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	w.remove(w.Local, "a")
	w.run(w.sliced())
	w.isGone(w.Local, "a")
	for _, cp := range w.Members {
		w.isGone(cp, copyOf("a"))
	}
}

// runUntil runs a reconciler, and kills it after a request, or when it has nothing to do in so many targets of the owner a. With less
// than none, the request must come.
func (w *world) runUntil(r *dependents.Reconciler[*corev1.ConfigMap], request string, targets int) {
	w.t.Helper()
	all := reportsOf(w.t, r)
	p := w.run(r)
	w.cutAfter(p, request)
	isDone := func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		done := 0
		for _, result := range all.of["a"] {
			if len(result.Objects) > 0 && result.Err == nil {
				done++
			}
		}
		return done == targets
	}
	eventually(w.t, "the program has come to "+request+", or has nothing to do", func() bool {
		return p.power.isOff() || isDone() && p.isAtRest()
	})
	p.kill()
}

// cutAfter takes the power from a program once a request was answered.
func (w *world) cutAfter(p *process, what string) {
	method, object, _ := strings.Cut(what, " ")
	part := map[string]string{"owner": "/configmaps/a", "slice": "/dependentslices", "copy": "/configmaps/" + copyOf("a")}[object]
	var once sync.Once
	tap := func(req *http.Request) func() {
		path := req.URL.Path
		if object == "slice" && method != http.MethodPost {
			path = path[:strings.LastIndex(path, "/")]
		}
		if req.Method != method || !strings.HasSuffix(path, part) {
			return nil
		}
		return func() { once.Do(p.power.off) }
	}
	p.power.tap.Store(&tap)
}

func TestTheRecordMovesToSlicesAndBack(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
	uid := w.mustGet(w.Members[0], copyOf("a")).UID
	p.stop()
	p = w.run(w.sliced())
	w.areSliced(w.Members...)
	p.stop()
	p = w.run(w.spread())
	eventually(t, "the annotation has the record again, and there are no slices", func() bool {
		annotations := w.mustGet(w.Local, "a").Annotations
		_, sliced := annotations[slicesKey]
		return !sliced && len(w.slices()) == 0 && strings.Contains(annotations[placedInKey], w.Members[2].Name)
	})
	if now := w.mustGet(w.Members[0], copyOf("a")); now.UID != uid {
		t.Error("a dependent was made anew")
	}
	p.stop()
}

// TestAClusterIsInTheRecordWhileThatMoves from annotations to slices and back, whatever request is the last one that gets through.
func TestAClusterIsInTheRecordWhileThatMoves(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
	uid := w.mustGet(w.Members[0], copyOf("a")).UID
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	for _, request := range []string{
		"forth POST slice", "back PATCH owner", "forth PATCH owner", "back DELETE slice", "forth PUT slice", "back PATCH slice", "forth PATCH owner", "back PATCH owner",
	} {
		where, what, _ := strings.Cut(request, " ")
		r := w.sliced()
		if where == "back" {
			r.Slices = nil
		}
		w.runUntil(r, what, 3)
		noted, annotation := w.inSlices(), placedIn(w.mustGet(w.Local, "a"))
		for _, cp := range w.Members {
			if !strings.Contains(annotation, cp.Name) && !noted[cp.Name].MayHaveDependents {
				t.Errorf("killed after %s: %s is neither in %q nor in %v", request, cp.Name, annotation, noted)
			}
		}
	}
	w.run(w.sliced())
	w.areSliced(w.Members...)
	if now := w.mustGet(w.Members[0], copyOf("a")); now.UID != uid {
		t.Error("a dependent was made anew")
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if n := len(w.slices()); n > 0 {
		t.Errorf("%d slices are left", n)
	}
}

func TestWhatOthersDoToSlicesLosesNothing(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	victim := w.slices()[0]
	if err := w.Local.Client().Delete(t.Context(), &victim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slice is gone, and others have its clusters", func() bool {
		return !slices.ContainsFunc(w.slices(), func(s v1alpha1.DependentSlice) bool { return s.UID == victim.UID })
	})
	w.areSliced(w.Members...)
	// An edit is overwritten with the next change.
	edited := w.slices()[0]
	edited.Clusters = append(edited.Clusters, v1alpha1.Cluster{Name: "no-such-cluster", MayHaveDependents: true})
	if err := w.Local.Client().Update(t.Context(), &edited); err != nil {
		t.Fatal(err)
	}
	// While nobody looks, all slices are taken by force: the record is lost, and the owner knows that.
	p.stop()
	for _, s := range w.slices() {
		s.Finalizers = nil
		if err := w.Local.Client().Update(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if err := w.Local.Client().Delete(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	r := w.sliced()
	r.Slices = dependents.SlicesOf(1) // one for each cluster
	w.runUntil(r, "POST slice", -1)
	if !w.lacksSlices("a") {
		for _, cp := range w.Members {
			if !w.inSlices()[cp.Name].MayHaveDependents {
				t.Errorf("killed before all slices were there again, the owner does not know that of %s is missing", cp.Name)
			}
		}
	}
	w.run(w.sliced())
	for _, cp := range w.Members {
		w.isGone(cp, copyOf("a"))
	}
}

// lacksSlices reports whether an owner says that there is a slice that there is not.
func (w *world) lacksSlices(owner string) bool {
	w.t.Helper()
	var said record.Slices
	if err := json.Unmarshal([]byte(w.mustGet(w.Local, owner).Annotations[slicesKey]), &said); err != nil {
		w.t.Fatal(err)
	}
	there := w.slices()
	return slices.ContainsFunc(said.Numbers, func(number int) bool {
		return !slices.ContainsFunc(there, func(s v1alpha1.DependentSlice) bool { return strings.HasSuffix(s.Name, fmt.Sprint("-", number)) })
	})
}

func TestSlicesOfOwnersThatAreGoneAreRemoved(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 1)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	w.create(w.Local, w.owner("b", w.Members[0].Name))
	for _, name := range []string{"a", "b"} {
		w.isCopied(w.Members[0], name)
	}
	eventually(t, "both have slices", func() bool { return len(w.slices()) == 2 })
	eventually(t, "the program is at rest", p.isAtRest)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	p.stop()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.run(w.sliced())
	eventually(t, "the slice of the owner that is gone is removed", func() bool {
		all := w.slices()
		return len(all) == 1 && all[0].Owner.Name == "b"
	})
}
