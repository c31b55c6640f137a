package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
)

// endless is a cluster in which an owner has slices without end. Each says so much of one cluster.
type endless struct {
	client.Reader

	of    shelf
	bytes int
	pages int // that were read
}

// List implements client.Reader.
func (e *endless) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	all := list.(*unstructured.UnstructuredList) //nolint:forcetypeassert // slices are read so
	for range atOnce {
		s := unstructured.Unstructured{Object: map[string]any{
			"owner": map[string]any{"uid": "1"}, "clusters": []any{map[string]any{"name": fmt.Sprint(e.pages), "error": strings.Repeat("e", e.bytes)}},
		}}
		s.SetName(e.of.name(e.pages))
		all.Items = append(all.Items, s)
		e.pages++
	}
	all.SetContinue("more")
	return nil
}

// TestSlicesWithoutEndAreNotRead for ever, and may say that there are dependents anywhere.
func TestSlicesWithoutEndAreNotRead(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ bytes, most int }{"many": {0, mostSlices}, "large": {1 << 20, mostRead >> 20}} {
		e := &endless{of: shelfOf(someOwner(), "ns"), bytes: c.bytes}
		b, _, err := Load(t.Context(), e, someOwner(), Slices{Namespace: "ns"})
		if err != nil || !b.isStrange() || e.pages > c.most+atOnce || len(b.pages) < c.most/2 {
			t.Errorf("%s: %d were read, and the book has %d, strange: %t, error %v", what, e.pages, len(b.pages), b.isStrange(), err)
		}
	}
}

type absent struct{ client.Reader }

// List implements client.Reader.
func (absent) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "dependentslices"}, "")
}

// TestAKindThatIsNotServedIsNoOwnerThatIsGone: for callers, not found is about the owner.
func TestAKindThatIsNotServedIsNoOwnerThatIsGone(t *testing.T) {
	t.Parallel()
	if _, _, err := Load(t.Context(), absent{}, someOwner(), Slices{Namespace: "ns"}); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "install the manifest") {
		t.Errorf("reading slices returned %v", err)
	}
}

// TestSlicesHaveNoMoreThanTheirKindAllows, however little is said of clusters, and wherever strangers have put them.
func TestSlicesHaveNoMoreThanTheirKindAllows(t *testing.T) {
	t.Parallel()
	small := make([]v1alpha1.Cluster, 3*mostClusters)
	names := make([]string, len(small))
	for i := range small {
		names[i] = fmt.Sprintf("c%04d", i)
		small[i].Name = names[i]
	}
	fresh, _ := lay(t, NewBook(someOwner(), "ns"), small, DefaultBytes, true)
	for number, p := range fresh.pages {
		if len(p.names) > mostClusters/2 {
			t.Errorf("slice %d begins with %d clusters, which leaves no room for others", number, len(p.names))
		}
	}
	crowded := NewBook(someOwner(), "ns")
	crowded.pages[3] = page{names: names}
	spread, _ := lay(t, crowded, small, DefaultBytes, true) // it looks how many each has
	if n := len(spread.pages[3].names); n != mostClusters {
		t.Errorf("%d clusters stay where they were, want %d", n, mostClusters)
	}

	c := clustersWith(1, 0)[0]
	c.Objects = slices.Repeat([]v1alpha1.Object{{}}, 5*mostObjects)
	if l, err := within(c, 1<<20); err != nil || len(l.Objects) != mostObjects || int(l.Omitted) != 4*mostObjects {
		t.Errorf("of a cluster with %d objects, %d are told and %d omitted, error %v", len(c.Objects), len(l.Objects), l.Omitted, err)
	}
	c = clustersWith(1, mostObjects)[0]
	layout, err := NewBook(someOwner(), "ns").Lay([]v1alpha1.Cluster{c}, 64<<10, true)
	if err != nil || len(layout.pages[0][0].json) > 32<<10 {
		t.Errorf("of one cluster a slice of %d bytes has %d, which leaves no room for it to grow, error %v", 64<<10, len(layout.pages[0][0].json), err)
	}

	two := NewBook(someOwner(), "ns")
	two.pages[1], two.pages[5] = page{names: []string{"a"}}, page{names: []string{"a"}}
	if at := two.places()["a"]; at != 5 {
		t.Errorf("a cluster that was being moved from slice 1 to slice 5 is in %d", at)
	}
}
