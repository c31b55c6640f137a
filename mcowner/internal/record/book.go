package record

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Book is what the slices of one owner have, as they were read or written last. It is not changed: the next one is another.
type Book struct {
	of     shelf
	ref    mcowner.Reference
	pages  map[int]page
	absent bool   // some slice that the owner says there is was not found
	lost   []Site // that others have taken from slices since these were written
}

// page is one slice.
type page struct {
	uid      types.UID
	version  string
	deleting bool
	strange  bool // it cannot be read as it was written
	foreign  bool // it is of an earlier owner of the name, and says nothing about this one
	sites    []Site
	names    []string // of clusters, also where there are no dependents
	size     int      // of what was read, in bytes
	hash     hash     // of the clusters as they were written; zero if others may have written it
}

type hash [sha256.Size]byte

// shelf is where slices are, and what they are called.
type shelf struct{ namespace, owner, prefix string }

func shelfOf(owner mcowner.Reference, namespace string) shelf {
	owner.Cluster = "" // the slices are in the owner's cluster, whatever it is called
	sum := strings.TrimPrefix(owner.Key(), mcowner.KeyPrefix)
	return shelf{namespace, sum, mcowner.UniqueName(50, owner.Name, sum) + "-"}
}

func (s shelf) name(number int) string { return s.prefix + strconv.Itoa(number) }

func (s shelf) number(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, s.prefix)
	number, err := strconv.Atoi(text)
	return number, ok && err == nil && number >= 0 && s.name(number) == name
}

// NewBook returns a book of an owner that has no slices.
func NewBook(owner mcowner.Reference, namespace string) *Book {
	return &Book{of: shelfOf(owner, namespace), ref: owner, pages: map[int]page{}}
}

// IsOf reports whether the book is that of an owner.
func (b *Book) IsOf(owner types.UID) bool { return b != nil && b.ref.UID == owner }

// Has reports whether a slice of this name is known.
func (b *Book) Has(slice types.NamespacedName) bool {
	if b == nil || slice.Namespace != b.of.namespace {
		return false
	}
	number, ok := b.of.number(slice.Name)
	_, has := b.pages[number]
	return ok && has
}

// IsBehind reports whether a slice of this name is known, and as it was before this version.
func (b *Book) IsBehind(slice types.NamespacedName, version string) bool {
	if !b.Has(slice) {
		return false
	}
	number, _ := b.of.number(slice.Name)
	known := b.pages[number].version
	order, err := resourceversion.CompareResourceVersion(known, version)
	return order < 0 || err != nil && known != version
}

// IsThere reports whether there is any slice of the owner.
func (b *Book) IsThere() bool { return len(b.Slices().Numbers) > 0 }

// IsDeleting reports whether somebody deletes a slice.
func (b *Book) IsDeleting() bool {
	for _, p := range b.pages {
		if p.deleting {
			return true
		}
	}
	return false
}

// Slices says where the slices are, and which there are.
func (b *Book) Slices() *Slices {
	said := &Slices{Namespace: b.of.namespace}
	for _, number := range slices.Sorted(maps.Keys(b.pages)) {
		if !b.pages[number].foreign {
			said.Numbers = append(said.Numbers, number)
		}
	}
	return said
}

// IsEmpty reports whether there are no slices.
func (b *Book) IsEmpty() bool { return b == nil || len(b.pages) == 0 }

// Sites returns the clusters in which there may be dependents, ordered by name, each once.
func (b *Book) Sites() []Site {
	all := slices.Clone(b.lost)
	for _, number := range slices.Sorted(maps.Keys(b.pages)) {
		all = append(all, b.pages[number].sites...)
	}
	return distinct(all)
}

// Recalling returns the book with the clusters that slices had when they were written or read before. Nobody else takes clusters
// from the record.
func (b *Book) Recalling(before *Book) *Book {
	if !before.IsOf(b.ref.UID) {
		return b
	}
	now := *b
	here := map[Site]bool{}
	for _, s := range b.Sites() {
		here[s] = true
	}
	now.lost = slices.DeleteFunc(before.Sites(), func(s Site) bool { return here[s] })
	return &now
}

// IsWhole reports whether slices are this owner's, and have all that they had when they were written.
func (b *Book) IsWhole() bool {
	for _, p := range b.pages {
		if p.foreign {
			return false
		}
	}
	return len(b.lost) == 0 && !b.isStrange()
}

// distinct returns sites ordered by name, each once, and none without an identity where one is known.
func distinct(sites []Site) []Site {
	slices.SortStableFunc(sites, func(x, y Site) int { return cmp.Compare(x.Name, y.Name) })
	seen := make(map[Site]bool, len(sites))
	known := map[mcreconcile.ClusterName]bool{}
	for _, s := range sites {
		known[s.Name] = known[s.Name] || s.Identity != ""
	}
	return slices.DeleteFunc(sites, func(s Site) bool {
		drop := seen[s] || s.Identity == "" && known[s.Name]
		seen[s] = true
		return drop
	})
}

// isStrange reports whether there may be dependents where no slice says so.
func (b *Book) isStrange() bool {
	strange := b.absent
	for _, p := range b.pages {
		strange = strange || p.strange
	}
	return strange
}

// With returns the record with what slices have besides.
func (r Record) With(b *Book) Record {
	if b == nil {
		return r
	}
	r.Sites = distinct(append(slices.Clone(r.Sites), b.Sites()...))
	r.Nonsense = r.Nonsense || b.isStrange()
	return r
}

// Bounds of slices.
const (
	// DefaultBytes is how large a slice may become. The API server takes 1.5 MB at most, and etcd as much.
	DefaultBytes = 200 << 10
	mostClusters = 1000
	mostObjects  = 1000
)

// Layout says which slice has which clusters.
type Layout struct {
	pages map[int][]leaf
	// moved are the slices from which clusters go to others. They are written last, so that a cluster is in one at all times.
	moved map[int]bool
}

// leaf is what a slice says of a cluster.
type leaf struct {
	v1alpha1.Cluster

	json []byte
}

// Lay finds which slice has which cluster. A cluster stays where it is, unless its slice is too large or, with renew, being
// deleted. New ones go where half of the room is left, since what is said of clusters grows. Without renew they may go to a slice
// that is being deleted, as its namespace may be, in which nothing new can be made.
func (b *Book) Lay(clusters []v1alpha1.Cluster, most int, renew bool) (Layout, error) {
	layout := Layout{map[int][]leaf{}, map[int]bool{}}
	at := b.places()
	var homeless []leaf
	for _, c := range clusters {
		l, err := within(c, most/2)
		if err != nil {
			return layout, err
		}
		number, placed := at[c.Name]
		if placed && (!renew || !b.pages[number].deleting) {
			layout.pages[number] = append(layout.pages[number], l)
		} else {
			homeless = append(homeless, l)
		}
	}
	for number, leaves := range layout.pages {
		if size(leaves) > most || len(leaves) > mostClusters {
			fit := fitting(leaves, most, mostClusters)
			layout.pages[number], layout.moved[number] = leaves[:fit:fit], true
			homeless = append(homeless, leaves[fit:]...)
		}
	}
	layout.settle(b, homeless, most/2, renew)
	for _, leaves := range layout.pages {
		slices.SortFunc(leaves, func(x, y leaf) int { return cmp.Compare(x.Name, y.Name) })
	}
	return layout, nil
}

// places returns which slice has a cluster. One in several is being moved, to the last of them.
func (b *Book) places() map[string]int {
	at := map[string]int{}
	for _, number := range slices.Sorted(maps.Keys(b.pages)) {
		for _, name := range b.pages[number].names {
			at[name] = number
		}
	}
	return at
}

// settle finds slices for clusters that are in none.
func (l Layout) settle(b *Book, homeless []leaf, most int, renew bool) {
	slices.SortFunc(homeless, func(x, y leaf) int { return cmp.Compare(x.Name, y.Name) })
	number, room, count := -1, 0, 0
	for _, h := range homeless {
		for number < 0 || room < len(h.json)+1 || count >= mostClusters/2 {
			number++
			room, count = most-size(l.pages[number]), len(l.pages[number])
			if renew && b.pages[number].deleting {
				room = 0
			} else if count == 0 {
				room = max(room, len(h.json)+1)
			}
		}
		l.pages[number] = append(l.pages[number], h)
		room, count = room-len(h.json)-1, count+1
	}
}

func size(leaves []leaf) (sum int) {
	for _, l := range leaves {
		sum += len(l.json) + 1
	}
	return sum
}

// fitting returns how many of the leaves fit.
func fitting(leaves []leaf, most, count int) int {
	for i, l := range leaves {
		if most -= len(l.json) + 1; most < 0 || i >= count {
			return i
		}
	}
	return len(leaves)
}

// within returns what is said of a cluster, without some of its objects if that is too long: those that have no error first.
func within(c v1alpha1.Cluster, most int) (leaf, error) {
	for keep := min(len(c.Objects), mostObjects); ; keep /= 2 {
		short := c
		if keep < len(c.Objects) {
			kept := slices.Clone(c.Objects)
			slices.SortStableFunc(kept, func(x, y v1alpha1.Object) int { return failedFirst(x) - failedFirst(y) })
			short.Objects, short.Omitted = kept[:keep:keep], c.Omitted+int32(len(c.Objects)-keep) //nolint:gosec // no cluster has so many
		}
		content, err := json.Marshal(short)
		if err != nil {
			return leaf{}, fmt.Errorf("writing down what came of cluster %q: %w", c.Name, err)
		}
		if len(content) <= most || keep == 0 {
			return leaf{short, content}, nil
		}
	}
}

func failedFirst(o v1alpha1.Object) int {
	if o.Error != "" {
		return 0
	}
	return 1
}

// Numbers returns which slices there are to be.
func (l Layout) Numbers() []int { return slices.Sorted(maps.Keys(l.pages)) }

// Clusters returns what each slice is to say.
func (l Layout) Clusters() map[int][]v1alpha1.Cluster {
	of := make(map[int][]v1alpha1.Cluster, len(l.pages))
	for number, leaves := range l.pages {
		for _, leaf := range leaves {
			of[number] = append(of[number], leaf.Cluster)
		}
	}
	return of
}

// order returns the slices in the order in which they are written.
func (l Layout) order() []int {
	numbers := l.Numbers()
	slices.SortStableFunc(numbers, func(x, y int) int {
		return cmp.Compare(btoi(l.moved[x]), btoi(l.moved[y]))
	})
	return numbers
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func hashOf(leaves []leaf) hash {
	var all bytes.Buffer
	for _, l := range leaves {
		all.Write(l.json)
		all.WriteByte('\n')
	}
	return sha256.Sum256(all.Bytes())
}

// SitesOf returns the clusters in which there may be dependents, of those that a slice has.
func SitesOf(clusters []v1alpha1.Cluster) []Site {
	var sites []Site
	for _, c := range clusters {
		if c.MayHaveDependents {
			sites = append(sites, sitesOf(mcreconcile.ClusterName(c.Name), c.Identities)...)
		}
	}
	return sites
}
