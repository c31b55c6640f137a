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

// mostOfBooks is how much is remembered of where owners may have dependents, in bytes: some 500 owners in 1000 clusters each. Others are asked for, or
// their slices read, again.
const mostOfBooks = 32 << 20

// books remember which clusters the slices of owners had, and the records of owners in members of other replicas, so that these are read once for all
// members, also where several are swept at once. That lets dependents alone, and proves nothing. nil remembers nothing.
type books struct {
	lasts time.Duration // it is remembered for so long

	mu    sync.Mutex // guards what follows
	known map[ownerHash]book
	size  int                       // of all that is known
	reads map[reading]chan struct{} // each is closed when it is over
}

// reading is that somebody finds out what the slices of an owner have, or, without a version, whether it is there.
type reading struct {
	owner   ownerHash
	version string // of the owner
	cached  bool   // the owner is as a cache has it, and is asked for first. Then it is another reading, which may wait for one that is not.
}

// book is what is remembered of an owner that was there, with its slices.
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

// has reports whether it is remembered that an owner, as it is now, may have dependents in the named cluster. It waits while another one reads the
// slices of the owner, once. If nothing is remembered, others wait for the caller until that calls done.
func (b *books) has(
	ctx context.Context, owner client.Object, ref mcowner.Reference, in mcreconcile.ClusterName, cached bool,
) (has bool, done func()) {
	if b == nil {
		return false, func() {}
	}
	return b.await(ctx, reading{hashOf(ref), versionOf(owner), cached}, in)
}

// hadLately reports whether an owner was there when it was asked for last, and might have dependents in the named cluster, whatever has become of it
// since. Others wait, as with has, and this one for no longer than most.
func (b *books) hadLately(ctx context.Context, ref mcowner.Reference, in mcreconcile.ClusterName, most time.Duration) (had bool, done func()) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return b.await(ctx, reading{owner: hashOf(ref)}, in)
}

func (b *books) await(ctx context.Context, this reading, in mcreconcile.ClusterName) (has bool, done func()) {
	has, others, done := b.begin(this, in)
	if others == nil {
		return has, done
	}
	select {
	case <-others:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	has, _ = b.hasLocked(this, in)
	return has, done
}

// begin reports whether it is remembered that an owner may have dependents in the named cluster. If nothing is remembered, its slices are read from
// now on until done, unless others read them already: these are done when that is closed.
func (b *books) begin(this reading, in mcreconcile.ClusterName) (has bool, others <-chan struct{}, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	has, known := b.hasLocked(this, in)
	over := b.reads[this]
	switch {
	case known:
		return has, nil, func() {}
	case over != nil:
		return false, over, func() {}
	case b.reads == nil:
		b.reads = map[reading]chan struct{}{}
	}
	over = make(chan struct{})
	b.reads[this] = over
	return false, nil, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.reads, this)
		close(over)
	}
}

func (b *books) hasLocked(this reading, in mcreconcile.ClusterName) (has, known bool) {
	is, known := b.known[this.owner]
	if !known || this.version != "" && is.version != this.version || time.Now().After(is.until) {
		return false, false
	}
	_, has = slices.BinarySearch(is.clusters, in)
	return has || is.anywhere, true
}

// noteThere remembers what an owner that was asked for has noted, unless its slices have the rest, or it is about to go.
func (b *books) noteThere(owner client.Object, ref mcowner.Reference) {
	if noted, _ := notedBy(owner, ref); noted.Slices == nil && owner.GetDeletionTimestamp().IsZero() {
		b.note(owner, ref, noted)
	}
}

// note remembers what an owner has noted, with what was read of its slices.
func (b *books) note(owner client.Object, ref mcowner.Reference, noted record.Record) {
	if b == nil {
		return
	}
	key := hashOf(ref)
	is := book{version: versionOf(owner), until: time.Now().Add(b.lasts), anywhere: noted.Nonsense || len(noted.Sites) == 0 && !noted.GivenUp, clusters: record.Names(noted.Sites)}
	is.size = 200 + len(key) + len(is.version) + 16*cap(is.clusters) // 200 for what maps need
	for _, name := range is.clusters {
		is.size += len(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil {
		b.known = map[ownerHash]book{}
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
	maps.DeleteFunc(b.known, func(_ ownerHash, of book) bool { return time.Now().After(of.until) })
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
		has, done := b.has(ctx, owner, ref, in, false)
		defer done()
		if has {
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
