package dependents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestOnlyTheAPIServersWordProvesThatAnOwnerIsGone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"NotFound":          {apierrors.NewNotFound(pods, "a"), true},
		"NotFoundAndMore":   {fmt.Errorf("reading: %w", apierrors.NewNotFound(pods, "a")), true},
		"AnotherObject":     {apierrors.NewNotFound(pods, "b"), false},
		"PageNotFound":      {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", pods, "a", "404 page not found", 0, true), false},
		"KindNotServed":     {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Pod"}}, false},
		"Forbidden":         {apierrors.NewForbidden(pods, "a", errors.New("no right")), false},
		"Expired":           {apierrors.NewResourceExpired("a"), false},
		"NoAnswer":          {errors.New("connection refused"), false},
		"NoError":           {nil, false},
		"NotFoundInGeneral": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isNotThere(tc.err, "a"); got != tc.want {
				t.Errorf("isNotThere(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}

// FuzzRecord reads whatever somebody has written where the owner's clusters are noted, and writes over it.
func FuzzRecord(f *testing.F) {
	f.Add(`["east","west"]`, `{"east":["1","2"]}`, "north", "3")
	f.Add(`["east"]`, `{"east":[""],"west":["1"]}`, "east", "")
	f.Add(`nonsense`, `nonsense`, "", "")
	f.Add(`[1]`, `{"east":1}`, "\x00", "\x00")
	f.Fuzz(func(t *testing.T, names, identities, name, identity string) {
		r := newRecord("payments", "copier")
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{r.annotation: names, r.identities: identities}}}
		placed, ok := r.read(owner)
		if !ok && len(placed) > 0 {
			t.Fatalf("%v cannot be read, and was read as %v", names, placed)
		}
		if !r.exists(owner) {
			t.Fatal("there is a record, and it is not seen")
		}
		more := site{mcreconcile.ClusterName(strings.ToValidUTF8(name, "")), types.UID(strings.ToValidUTF8(identity, ""))}
		if len(byName(placed)[more.name]) == 0 {
			placed = append(placed, more)
		}
		r.set(owner, placed, true)
		got, ok := r.read(owner)
		if diff := cmp.Diff(setOf(placed), setOf(got)); diff != "" || !ok {
			t.Fatalf("the record (-written, +read):\n%s", diff)
		}
		r.set(owner, nil, false)
		if len(owner.Annotations)+len(owner.Finalizers) > 0 {
			t.Fatalf("the record was removed, and is there: %v", owner.ObjectMeta)
		}
	})
}

func setOf(sites []site) map[string]bool {
	set := map[string]bool{}
	for _, s := range sites {
		set[fmt.Sprintf("%q %q", s.name, s.identity)] = true
	}
	return set
}

// TestARecordWithoutIdentitiesIsRead: it is of a version before they were noted, and names alone count.
func TestARecordWithoutIdentitiesIsRead(t *testing.T) {
	r := newRecord("payments", "copier")
	owner := &corev1.ConfigMap{}
	owner.Annotations = map[string]string{r.annotation: `["west","east"]`}
	got, ok := r.read(owner)
	if want := []site{{name: "east"}, {name: "west"}}; !ok || !slices.Equal(want, got) {
		t.Errorf("the record was read as %v, %t, want %v", got, ok, want)
	}
	r.set(owner, []site{{"east", "1"}, {name: "west"}, {"east", "2"}}, true)
	want := map[string]string{r.annotation: `["east","west"]`, r.identities: `{"east":["1","2"]}`}
	if diff := cmp.Diff(want, owner.Annotations); diff != "" {
		t.Errorf("the record (-want, +got), whose names a version before must be able to read:\n%s", diff)
	}
}

// TestWhatAnOwnerNotesIsBounded, however often a name is led to another cluster, and whatever that says that it is.
func TestWhatAnOwnerNotesIsBounded(t *testing.T) {
	p := &pass{controller: &controller{}, home: silent{}}
	var placed []site
	for i := range 10 * mostSites {
		placed = p.withinBounds(append(placed, site{"member", uidOf(fmt.Sprint(i, strings.Repeat("x", 1<<20)))}))
	}
	placed = append(placed, site{name: "other"})
	owner := &corev1.ConfigMap{}
	r := newRecord("payments", "copier")
	r.set(owner, placed, true)
	if n := len(owner.Annotations[r.identities]); n > mostSites*(longestIdentity+3)+100 {
		t.Errorf("the identities take %d bytes", n)
	}
	last := site{"member", uidOf(fmt.Sprint(10*mostSites-1, strings.Repeat("x", 1<<20)))}
	if got, _ := r.read(owner); len(got) != mostSites+1 || !slices.Contains(got, last) {
		t.Errorf("%d clusters are noted, want %d, the last among them", len(got), mostSites+1)
	}
}

// TestWhatSomebodyNotesOnAnOwnerCostsLittle: whoever may edit an owner may fill its annotations.
func TestWhatSomebodyNotesOnAnOwnerCostsLittle(t *testing.T) {
	many := make([]string, 8000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	r := newRecord("payments", "copier")
	owner := &corev1.ConfigMap{}
	owner.Annotations = withJSON(withJSON(nil, r.annotation, many, true), r.identities, map[string][]string{"0": many}, true)
	c := &controller{memories: newMemory()}
	p := &pass{controller: c, home: silent{}, memory: c.memories.of(mcreconcile.Request{})}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	placed, ok := r.read(owner)
	if last := (site{"0", "7999"}); !ok || len(byName(placed)["0"]) != mostSites || !slices.Contains(placed, last) {
		t.Errorf("%d clusters of one name were read, want the last %d", len(byName(placed)["0"]), mostSites)
	}
	_, left := p.each(t.Context(), namesOf(placed), placed, func(_ context.Context, name mcreconcile.ClusterName, sites []site) outcome {
		return p.left(name, sites, fleet.ErrUnknown)
	})
	goruntime.ReadMemStats(&after)
	if len(left) != len(placed) {
		t.Errorf("of %d clusters %d are left", len(placed), len(left))
	}
	if megabytes := (after.TotalAlloc - before.TotalAlloc) >> 20; megabytes > 100 {
		t.Errorf("it took %d MB", megabytes)
	}
	if n := len(c.memories.missing); n > 0 {
		t.Errorf("%d clusters are remembered as missed, though none is ever released", n)
	}
}

// TestEachClusterThatIsGivenUpIsToldOf: events about the same thing, for the same reason, would be one with the first text.
func TestEachClusterThatIsGivenUpIsToldOf(t *testing.T) {
	heard := &listener{}
	p := &pass{controller: &controller{config: config{releaseAfter: 1}, memories: newMemory()}, home: heard}
	sites := []site{{"member", "1"}, {"member", "2"}}
	for _, s := range sites {
		p.memories.missing[s] = time.Time{}
	}
	if left := p.unreleased(sites); len(left) > 0 {
		t.Errorf("%v still hold up the owner", left)
	}
	if diff := cmp.Diff([]string{"member 1", "member 2"}, heard.about); diff != "" {
		t.Errorf("events are about (-want, +got):\n%s", diff)
	}
}

// listener hears what events of a cluster are about.
type listener struct {
	silent
	events.FakeRecorder
	about []string
}

// GetEventRecorder implements recorder.Provider.
func (l *listener) GetEventRecorder(string) recorder.EventRecorder { return l }

// Eventf implements events.EventRecorder.
func (l *listener) Eventf(_, related runtime.Object, _, _, _, _ string, _ ...any) {
	ref := related.(*corev1.ObjectReference) //nolint:forcetypeassert // as emit says it
	l.about = append(l.about, ref.Name+" "+ref.FieldPath)
}

// TestAnOwnerCanNoteAFleet of 3000 clusters: the API server takes 256 KiB of annotations.
func TestAnOwnerCanNoteAFleet(t *testing.T) {
	placed := make([]site, 3000)
	for i := range placed {
		placed[i] = site{mcreconcile.ClusterName(fmt.Sprintf("%020d", i)), "ec4a8a5e-3b0f-4d0e-b7dd-70f4bd7d9d35"}
	}
	owner := &corev1.ConfigMap{}
	newRecord("payments", "copier").set(owner, placed, true)
	if err := apivalidation.ValidateAnnotationsSize(owner.Annotations); err != nil {
		t.Error(err)
	}
}

// silent is a cluster that nobody hears of.
type silent struct{ cluster.Cluster }

// GetEventRecorder implements recorder.Provider.
func (silent) GetEventRecorder(string) recorder.EventRecorder { return &events.FakeRecorder{} }
