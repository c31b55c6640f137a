package record

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// shelves is a cluster with slices, and a client that counts what it writes.
type shelves struct {
	client.Client
	ctx    context.Context // of the test
	writes atomic.Int32
}

type counting struct {
	*shelves
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.through.RoundTrip(req)
}

func newShelves(t *testing.T) (*shelves, mcowner.Reference) {
	t.Helper()
	cp := pool.Start(t, mctest.Options{CRDPaths: []string{"../../dependents/v1alpha1/crd.yaml"}}).Local
	cfg, s := cp.Config(), &shelves{ctx: t.Context()}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return counting{s, through} })
	var err error
	if s.Client, err = client.New(cfg, client.Options{}); err != nil {
		t.Fatal(err)
	}
	owner := someOwner()
	owner.Namespace = cp.CreateNamespace(t)
	return s, owner
}

// write lays clusters out, and writes the slices.
func (s *shelves) write(t *testing.T, b *Book, clusters []v1alpha1.Cluster) *Book {
	t.Helper()
	layout, err := b.Lay(clusters, DefaultBytes, true)
	if err != nil {
		t.Fatal(err)
	}
	now, err := b.Write(t.Context(), s, layout, "test")
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func (s *shelves) load(t *testing.T, owner mcowner.Reference, said Slices) *Book {
	t.Helper()
	b, _, err := Load(t.Context(), s, owner, said)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSlicesAreAsLargeAsPromisedAndAreWrittenOnce: of a thousand clusters with five dependents each, of some with long names whose
// slices have grown, and of some with as much as may be said of a cluster.
func TestSlicesAreAsLargeAsPromisedAndAreWrittenOnce(t *testing.T) {
	t.Parallel()
	for what, clusters := range map[string][]v1alpha1.Cluster{
		"a thousand": clustersWith(1000, 5), "long names": withLongNames(1000), "the largest": largest(4),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, owner := newShelves(t)
			book := s.write(t, NewBook(owner, owner.Namespace), clusters)
			for i := range clusters {
				clusters[i].Error = strings.Repeat("e", 380)
			}
			book = s.write(t, book, clusters)
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind + "List"))
			if err := s.List(t.Context(), list, client.InNamespace(owner.Namespace)); err != nil {
				t.Fatal(err)
			}
			most, sum := 0, 0
			for _, item := range list.Items {
				content, err := item.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				most, sum = max(most, len(content)), sum+len(content)
			}
			t.Logf("%d clusters are in %d slices of %d bytes at most, %d in all", len(clusters), len(list.Items), most, sum)
			if most > 256<<10 {
				t.Errorf("a slice has %d bytes", most)
			}
			read := s.load(t, owner, *book.Slices())
			if len(Names(read.Sites())) != len(clusters) || !read.IsWhole() {
				t.Errorf("of %d clusters, %d were read", len(clusters), len(Names(read.Sites())))
			}
			before := s.writes.Load()
			s.write(t, read, clusters)
			if n := s.writes.Load() - before; n != 0 {
				t.Errorf("%d requests wrote slices that are as they should be", n)
			}
			clusters[0].Error = "news"
			s.write(t, read, clusters)
			if n := s.writes.Load() - before; n != 1 {
				t.Errorf("%d requests for news of one cluster", n)
			}
		})
	}
}

func withLongNames(n int) []v1alpha1.Cluster {
	clusters := clustersWith(n, 0)
	for i := range clusters {
		clusters[i].Name = fmt.Sprintf("%0317d", i)
	}
	return clusters
}

// largest returns clusters of which as much is said as may be.
func largest(n int) []v1alpha1.Cluster {
	clusters := make([]v1alpha1.Cluster, n)
	long, now := strings.Repeat("e", 512), metav1.Unix(1e9, 0)
	for i := range clusters {
		c := &clusters[i]
		*c = v1alpha1.Cluster{Name: fmt.Sprintf("%0317d", i), MayHaveDependents: true, Targeted: true, Error: long, Since: now}
		for j := range MostSites {
			c.Identities = append(c.Identities, types.UID(fmt.Sprintf("%064d", j)))
		}
		for j := range 2000 {
			c.Objects = append(c.Objects, v1alpha1.Object{
				Kind: strings.Repeat("K", 384), Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%0253d", j),
				UID: types.UID(strings.Repeat("u", 36)), State: "Forbidden", Error: long, Since: now,
			})
		}
	}
	return clusters
}

// TestSlicesThatStrangersHaveMadeOrChanged neither add nor take anything without that being seen.
func TestSlicesThatStrangersHaveMadeOrChanged(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change  func(s *shelves, slice *unstructured.Unstructured) error
		unwhole bool // it is seen that something is missing
		adds    int
	}{
		"another name with the labels": {change: func(s *shelves, slice *unstructured.Unstructured) error {
			return s.another(slice, "stranger", slice.Object["owner"])
		}},
		"a number that is not the owner's": {change: func(s *shelves, slice *unstructured.Unstructured) error {
			return s.another(slice, strings.TrimSuffix(slice.GetName(), "0")+"00", slice.Object["owner"])
		}},
		"the next number, of an earlier owner": {unwhole: true, change: func(s *shelves, slice *unstructured.Unstructured) error {
			owner := slice.DeepCopy().Object["owner"].(map[string]any)
			owner["uid"] = "before"
			return s.another(slice, strings.TrimSuffix(slice.GetName(), "0")+"7", owner)
		}},
		"the next number, made up": {adds: 1, change: func(s *shelves, slice *unstructured.Unstructured) error {
			return s.another(slice, strings.TrimSuffix(slice.GetName(), "0")+"7", slice.Object["owner"])
		}},
		"it is gone": {unwhole: true, adds: -10, change: func(s *shelves, slice *unstructured.Unstructured) error {
			return s.Delete(s.ctx, slice)
		}},
		"its label is gone": {unwhole: true, adds: -10, change: func(s *shelves, slice *unstructured.Unstructured) error {
			slice.SetLabels(nil)
			return s.Update(s.ctx, slice)
		}},
		"it names another owner": {change: func(s *shelves, slice *unstructured.Unstructured) error {
			slice.Object["owner"].(map[string]any)["uid"] = "other"
			return s.Update(s.ctx, slice)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, owner := newShelves(t)
			clusters := clustersWith(10, 1)
			book := s.write(t, NewBook(owner, owner.Namespace), clusters)
			slice := book.empty(0, book.pages[0])
			if err := s.Get(t.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
				t.Fatal(err)
			}
			slice.SetFinalizers(nil)
			if err := s.Update(t.Context(), slice); err != nil {
				t.Fatal(err)
			}
			if err := c.change(s, slice.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			read := s.load(t, owner, *book.Slices())
			if got := len(Names(read.Sites())); got != 10+c.adds {
				t.Errorf("slices have %d clusters, want %d", got, 10+c.adds)
			}
			if read.IsWhole() == c.unwhole {
				t.Errorf("they are whole: %t", read.IsWhole())
			}
			if recalled := read.Recalling(book); len(Names(recalled.Sites())) != 10+max(0, c.adds) {
				t.Errorf("with what was known before, there are %d clusters", len(Names(recalled.Sites())))
			}
			s.mend(t, owner, *book.Slices(), clusters)
		})
	}
}

// another makes a slice with the labels of one, that says that there is another cluster.
func (s *shelves) another(like *unstructured.Unstructured, name string, owner any) error {
	slice := &unstructured.Unstructured{Object: map[string]any{
		"owner": owner, "clusters": []any{map[string]any{"name": "made-up", "mayHaveDependents": true}},
	}}
	slice.SetGroupVersionKind(like.GroupVersionKind())
	slice.SetNamespace(like.GetNamespace())
	slice.SetName(name)
	slice.SetLabels(like.GetLabels())
	return s.Create(s.ctx, slice)
}

// mend writes slices, whatever others have done to them.
func (s *shelves) mend(t *testing.T, owner mcowner.Reference, said Slices, clusters []v1alpha1.Cluster) {
	t.Helper()
	for range 3 {
		read := s.load(t, owner, said)
		layout, err := read.Lay(clusters, DefaultBytes, true)
		if err != nil {
			t.Fatal(err)
		}
		now, err := read.Write(t.Context(), s, layout, "test")
		if errors.Is(err, ErrOutdated) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !now.IsWhole() {
			t.Error("what was written just now is not whole")
		}
		elsewhere := *now.Slices()
		elsewhere.Namespace = "elsewhere" // which counts for owners in no namespace alone
		if read = s.load(t, owner, elsewhere); !read.IsWhole() || len(Names(read.Sites())) != len(clusters) {
			t.Errorf("after that there are %d clusters, and they are whole: %t", len(Names(read.Sites())), read.IsWhole())
		}
		return
	}
	t.Error("slices are outdated again and again")
}

// TestRemovingSlicesLeavesThoseOfStrangers, also if these have their labels.
func TestRemovingSlicesLeavesThoseOfStrangers(t *testing.T) {
	t.Parallel()
	s, owner := newShelves(t)
	book := s.write(t, NewBook(owner, owner.Namespace), clustersWith(10, 1))
	slice := book.empty(0, book.pages[0])
	if err := s.another(slice, "stranger", map[string]any{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), s, s, owner, owner.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(slice), slice.DeepCopy()); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the slice is there: %v", err)
	}
	if err := remove(t.Context(), s, slice.DeepCopy()); err != nil {
		t.Errorf("removing one that is gone: %v", err)
	}
	slice.SetName("stranger")
	stays := func(when string) *unstructured.Unstructured {
		t.Helper()
		now := slice.DeepCopy()
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(slice), now); err != nil || now.GetDeletionTimestamp() != nil {
			t.Errorf("the stranger's is not there %s: %v, deleted at %v", when, err, now.GetDeletionTimestamp())
		}
		return now
	}
	now := stays("at first")
	before := now.DeepCopy()
	before.SetUID("of-one-before")
	if err := remove(t.Context(), s, before); !errors.Is(err, ErrOutdated) {
		t.Errorf("removing one that has another's name now: %v", err)
	}
	stays("after one of its name was removed")
	if err := remove(t.Context(), replacing{s, t, now}, now); err == nil {
		t.Error("removing one that another takes the place of returned no error")
	}
	if again := stays("after the one before it was removed"); !slices.Contains(again.GetFinalizers(), "of/another") {
		t.Errorf("the finalizers of the next one are %q", again.GetFinalizers())
	}
}

// replacing is a client by which another object takes the place of one that is deleted.
type replacing struct {
	client.Client

	t   *testing.T
	one *unstructured.Unstructured
}

// Delete implements client.Client.
func (r replacing) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := r.Client.Delete(ctx, obj, opts...); err != nil {
		return err
	}
	next := r.one.DeepCopy()
	next.SetUID("")
	next.SetResourceVersion("")
	next.SetFinalizers([]string{"of/another"})
	return r.Create(ctx, next)
}

// TestASliceThatIsGoneIsNoOwnerThatIsGone: for callers, not found is about the owner.
func TestASliceThatIsGoneIsNoOwnerThatIsGone(t *testing.T) {
	t.Parallel()
	s, owner := newShelves(t)
	clusters := clustersWith(3, 1)
	book := s.write(t, NewBook(owner, owner.Namespace), clusters)
	if err := remove(t.Context(), s, book.empty(0, book.pages[0])); err != nil {
		t.Fatal(err)
	}
	clusters[0].Error = "news"
	layout, err := book.Lay(clusters, DefaultBytes, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := book.Write(t.Context(), s, layout, "test"); !errors.Is(err, ErrOutdated) || apierrors.IsNotFound(err) {
		t.Errorf("writing it returned %v, want that it is to be read again", err)
	}
}

// misled is a client of which a gateway says at each deletion that there is no such page.
type misled struct{ client.Client }

// Delete implements client.Client.
func (misled) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", schema.GroupResource{Resource: "dependentslices"}, obj.GetName(), "404 page not found", 0, true)
}

// TestASliceOfWhichAGatewayHasAPageIsNotRemoved: nothing would look for it again.
func TestASliceOfWhichAGatewayHasAPageIsNotRemoved(t *testing.T) {
	t.Parallel()
	book := NewBook(someOwner(), "ns")
	if err := remove(t.Context(), misled{}, book.empty(0, page{uid: "1"})); !errors.Is(err, ErrOutdated) {
		t.Errorf("removing it returned %v, want that it is to be read again", err)
	}
}
