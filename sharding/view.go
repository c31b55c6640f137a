package sharding

import (
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// heldTable is the table as this replica last saw it.
type heldTable struct {
	lease   *coordinationv1.Lease // nil before
	content *protocol.Table       // the last that could be read; nil before
	text    string
	// problem says why the content of the Lease cannot be read. Nothing is written to the table then.
	problem error
	// doubt is set when what was seen may mean that the table was deleted, or was restored from a backup.
	doubt bool
	moves map[int]instant // since when buckets are known to be moving
}

// view is what the watch of the Leases writes to. It implements client-go's ReflectorStore.
type view struct{ *Replica }

// Add implements ReflectorStore.
func (v view) Add(obj any) error { return v.Update(obj) }

// Update implements ReflectorStore.
func (v view) Update(obj any) error {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("%T is no Lease", obj)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sawLocked(lease)
	v.watchedLocked(lease)
	return nil
}

// watchedLocked notes which version of the table the watch has come to.
func (v view) watchedLocked(lease *coordinationv1.Lease) {
	if lease.Name == v.opts.tableName() {
		v.watchedTable = lease.ResourceVersion
		v.work.send() // it may have been read before
	}
}

// Delete implements ReflectorStore.
func (v view) Delete(obj any) error {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("%T is no Lease", obj)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.goneLocked(lease.Name)
	return nil
}

// Replace implements ReflectorStore.
func (v view) Replace(objs []any, _ string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := make(map[string]bool, len(objs))
	for _, obj := range objs {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			there[lease.Name] = true
			v.sawLocked(lease)
		}
	}
	if !there[v.opts.tableName()] && v.table.lease != nil {
		v.goneLocked(v.opts.tableName())
	}
	for _, obj := range objs {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			v.watchedLocked(lease)
		}
	}
	for session := range v.peers {
		if name := v.opts.leaseName(session); !there[name] {
			v.goneLocked(name)
		}
	}
	maps.DeleteFunc(v.elsewhere, func(session string, _ *peer) bool { return !there[v.opts.leaseName(session)] })
	return nil
}

// Resync implements ReflectorStore.
func (view) Resync() error { return nil }

// sawLocked notes what a Lease looks like now.
func (r *Replica) sawLocked(lease *coordinationv1.Lease) {
	if lease.Name == r.opts.tableName() {
		r.sawTableLocked(lease)
		return
	}
	session, ok := r.opts.sessionOf(lease.Name)
	before := r.peers[session]
	if !ok || before == nil && !r.opts.isSession(lease) { // one that is known is a session whatever its Lease has lost
		r.sawElsewhereLocked(session, lease)
		return
	}
	now := &peer{lease: lease, heard: r.clock.now()}
	known := before != nil && before.lease != nil && before.lease.UID == lease.UID
	switch {
	case known && !before.gone && before.fenced(session):
		return // it stays so, whatever an older event says
	case known && !before.gone && before.lease.ResourceVersion == lease.ResourceVersion:
		return
	case known && now.fenced(session):
		now.heard = before.heard
	}
	r.peers[session] = now
	if before == nil || before.fenced(session) != now.fenced(session) || before.draining() != now.draining() {
		r.inputLocked()
	}
}

// sawElsewhereLocked notes what the Lease of a session of another pool looks like now, if it is one.
func (r *Replica) sawElsewhereLocked(session string, lease *coordinationv1.Lease) {
	before := r.elsewhere[session]
	if numberOf(lease) != 0 && (before == nil || before.lease.ResourceVersion != lease.ResourceVersion) {
		r.elsewhere[session] = &peer{lease: lease, heard: r.clock.now()}
	}
}

// isSession reports whether a Lease is that of a session of this pool, and no stranger's.
func (o *Options) isSession(lease *coordinationv1.Lease) bool {
	return numberOf(lease) != 0 && lease.Annotations[annotationPool] == o.Pool
}

// goneLocked notes that a Lease is gone, or seems to be.
func (r *Replica) goneLocked(name string) {
	if name == r.opts.tableName() {
		r.table.doubt = r.table.lease != nil
		r.work.send()
		return
	}
	session, ok := r.opts.sessionOf(name)
	delete(r.elsewhere, session)
	if ok && r.peers[session] != nil && !r.peers[session].gone {
		p := *r.peers[session]
		p.gone = true
		r.peers[session] = &p
		r.inputLocked()
	}
}

// sawTableLocked notes what the table looks like now.
func (r *Replica) sawTableLocked(lease *coordinationv1.Lease) {
	held := &r.table
	if held.lease != nil && held.lease.UID != lease.UID {
		held.doubt = true
		r.work.send()
		return
	}
	text := lease.Annotations[annotationBuckets]
	if held.lease != nil && held.text == text && held.problem == nil {
		held.lease = lease
		return
	}
	content, err := protocol.Decode(text)
	switch {
	case err != nil:
		held.lease, held.text, held.problem = lease, text, oneline.Error(err, maxError)
		r.work.send()
		return
	case held.content != nil && content.Gen < held.content.Gen:
		held.doubt = true // mostly an event that is late
		r.work.send()
		return
	case r.isBehindLocked(content):
		r.work.send() // it is raised first, see raiseTable
		return
	}
	r.takeTableLocked(lease, text, content)
}

// takeTableLocked makes the content what this replica goes by.
func (r *Replica) takeTableLocked(lease *coordinationv1.Lease, text string, content *protocol.Table) {
	now := r.clock.now()
	held, before := &r.table, r.table.content
	moves := make(map[int]instant, len(content.Moving))
	for b, to := range content.Moving {
		moves[b] = now
		if before != nil && before.Moving[b] == to {
			moves[b] = held.moves[b]
		}
	}
	if before == nil || joined(before, content) {
		r.settling.came(now)
	}
	*held = heldTable{lease: lease, content: content, text: text, moves: moves}
	for _, m := range content.Sessions {
		if r.peers[m.Session] == nil {
			r.peers[m.Session] = &peer{gone: true, heard: now}
		}
	}
	r.newest = max(r.newest, content.Gen)
	r.inputLocked()
	r.planFrom = now
	r.applyLocked()
}

// inputLocked notes that a plan may have to be another.
func (r *Replica) inputLocked() {
	if r.planned == r.inputs {
		r.planFrom = r.clock.now()
	}
	r.inputs++
	r.work.send()
}

// joined reports whether a session is in the table that was not before.
func joined(before, now *protocol.Table) bool {
	for _, m := range now.Sessions {
		if !before.Has(m.Session) {
			return true
		}
	}
	return false
}
