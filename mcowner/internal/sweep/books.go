package sweep

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// mostOfBooks is how much is remembered of what slices have, in bytes: some 500 owners in 1000 clusters each. The slices of others are read again.
const mostOfBooks = 32 << 20

// books remember which clusters the slices of owners had, so that these are read once for all members. That lets dependents alone, and proves
// nothing. nil remembers nothing.
type books struct {
	lasts time.Duration // it is remembered for so long

	mu    sync.Mutex // guards what follows
	known map[ownerKey]book
	size  int // of all that is known
}

// book is what is remembered of the slices of an owner.
type book struct {
	version  string // of the owner
	until    time.Time
	anywhere bool // it is not known: there may be dependents in any cluster
	clusters []mcreconcile.ClusterName
	size     int
}

// versionOf returns what changes with an owner: its generation if it has one, as statuses change all the while.
func versionOf(owner client.Object) string {
	if generation := owner.GetGeneration(); generation > 0 {
		return strconv.FormatInt(generation, 10)
	}
	return "of " + owner.GetResourceVersion()
}

// has reports whether it is remembered that an owner, as it is now, may have dependents in the named cluster.
func (b *books) has(owner client.Object, ref mcowner.Reference, in mcreconcile.ClusterName) bool {
	if b == nil {
		return false
	}
	key := ownerKeyOf(ref)
	b.mu.Lock()
	is, known := b.known[key]
	b.mu.Unlock()
	if !known || is.version != versionOf(owner) || time.Now().After(is.until) {
		return false
	}
	_, has := slices.BinarySearch(is.clusters, in)
	return has || is.anywhere
}

// note remembers what an owner has noted, with what was read of its slices.
func (b *books) note(owner client.Object, ref mcowner.Reference, noted record.Record) {
	if b == nil {
		return
	}
	key := ownerKeyOf(ref)
	is := book{version: versionOf(owner), until: time.Now().Add(b.lasts), anywhere: noted.Nonsense || len(noted.Sites) == 0 && !noted.GivenUp, clusters: record.Names(noted.Sites)}
	is.size = 200 + len(key.key) + len(key.uid) + len(is.version) + 16*cap(is.clusters) // 200 for what maps need
	for _, name := range is.clusters {
		is.size += len(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil {
		b.known = map[ownerKey]book{}
	}
	b.size -= b.known[key].size
	delete(b.known, key)
	if b.size+is.size > mostOfBooks {
		b.forgetOldLocked()
	}
	if b.size+is.size <= mostOfBooks {
		b.known[key] = is
		b.size += is.size
	}
}

func (b *books) forgetOldLocked() {
	maps.DeleteFunc(b.known, func(_ ownerKey, of book) bool { return time.Now().After(of.until) })
	b.size = 0
	for _, of := range b.known {
		b.size += of.size
	}
}

// isStray reports whether an owner that exists has noted that it has no dependents in the named cluster. Its slices are read if its metadata, and
// what is remembered, leave that open.
func (b *books) isStray(
	ctx context.Context, from client.Reader, owner client.Object, ref mcowner.Reference, in mcreconcile.ClusterName,
) (bool, error) {
	noted, ok := notedBy(owner, ref)
	if ok && noted.IsOpen(in) {
		if b.has(owner, ref, in) {
			return false, nil
		}
		read, _, err := record.Load(ctx, from, ref, *noted.Slices)
		if err != nil {
			return false, err
		}
		noted = noted.With(read)
		b.note(owner, ref, noted)
	}
	return ok && noted.Excludes(in), nil
}
