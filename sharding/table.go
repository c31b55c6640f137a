package sharding

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// knowTable makes sure that there is a table, and that it is the one that the replica knows. Otherwise the session is over.
func (r *Replica) knowTable(ctx context.Context, s *session) error {
	known, doubt := r.knownTable()
	if known != nil && !doubt {
		return nil
	}
	lease, err := r.get(ctx, r.opts.tableName())
	switch {
	case notfound.Is(err, r.opts.tableName()) && s != nil:
		r.dropTable(s)
		return nil
	case notfound.Is(err, r.opts.tableName()):
		r.dropTable(nil)
		lease, err = r.createTable(ctx)
	case err == nil && known != nil && known.isReplacedBy(lease):
		if s != nil {
			s.lose(errTableGone)
		}
		if lease.UID != known.lease.UID {
			r.dropTable(s)
			break
		}
		if err = r.deleteTable(ctx, lease); err == nil {
			r.dropTable(s)
			lease, err = r.createTable(ctx)
		}
	}
	if s != nil && s.over() != nil {
		return err
	}
	if err == nil {
		lease, err = r.raiseTable(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("reading the table %s/%s of who owns what: %w", r.opts.Namespace, r.opts.tableName(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table.content == nil {
		r.table = heldTable{} // what could not be read may have been another
	}
	r.table.doubt = false
	if r.sawTableLocked(lease); r.table.content == nil {
		return errProblem(lease.Name, r.table.problem)
	}
	return nil
}

// raiseTable makes a table that is new to this replica go on where the last one was that it has seen, if that was further: its buckets
// would have epochs that others had.
func (r *Replica) raiseTable(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	for {
		next := r.raised(lease)
		if next == nil {
			return lease, nil
		}
		text, err := next.Encode()
		if err != nil {
			return nil, err
		}
		raised := lease.DeepCopy()
		raised.Annotations[annotationBuckets] = text
		raised, err = ask(ctx, r.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return r.hub.writing.Update(ctx, raised, metav1.UpdateOptions{})
		})
		switch {
		case err == nil:
			r.log.Info("The table of who owns what was one from before; it goes on where the last one was", "generation", next.Gen)
			return raised, nil
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("writing one from before as the next: %w", err)
		}
		if lease, err = r.get(ctx, r.opts.tableName()); err != nil {
			return nil, err
		}
	}
}

// raised returns the table as it is to go on, and nil if it goes on where the last one was, or cannot be read.
func (r *Replica) raised(lease *coordinationv1.Lease) *protocol.Table {
	content, err := protocol.Decode(lease.Annotations[annotationBuckets])
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || !r.isBehindLocked(content) {
		return nil
	}
	return content.AtLeast(r.newest + 1)
}

// isBehindLocked reports whether a table that is new to the replica does not go on after the last. Where the last has counted further than
// anybody can, somebody has forged it.
func (r *Replica) isBehindLocked(content *protocol.Table) bool {
	return r.table.content == nil && content.Gen <= r.newest && r.newest < protocol.MaxStart
}

func (r *Replica) newestGen() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// knownTable returns the table that the replica goes by, nil if there is none.
func (r *Replica) knownTable() (known *heldTable, doubt bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table.content == nil {
		return nil, false
	}
	held := r.table
	return &held, held.doubt
}

// isReplacedBy reports whether what was read later is another table, or an older state of this one.
func (h *heldTable) isReplacedBy(lease *coordinationv1.Lease) bool {
	content, err := protocol.Decode(lease.Annotations[annotationBuckets])
	return h.lease.UID != lease.UID || err == nil && content.Gen < h.content.Gen
}

// dropTable forgets the table, and ends the session that went by it, if there is one.
func (r *Replica) dropTable(s *session) {
	if s != nil {
		s.lose(errTableGone)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table = heldTable{}
}

// deleteTable deletes a table that has gone back to an earlier state: it would give buckets to owners with epochs that others had.
func (r *Replica) deleteTable(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := ask(ctx, r.hub.writing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.hub.writing.Delete(ctx, lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
		})
	})
	return notfound.Ignore(err, lease.Name)
}

// createTable creates a table that is newer than all that this replica has seen.
func (r *Replica) createTable(ctx context.Context) (*coordinationv1.Lease, error) {
	start := r.hubTime(ctx).UnixMilli()
	if newest := r.newestGen(); newest < protocol.MaxStart { // nobody has counted as far as that: somebody has forged a table
		start = max(start, newest+1)
	}
	text, err := protocol.New(r.opts.Buckets, start).Encode()
	if err != nil {
		return nil, err
	}
	created, err := ask(ctx, r.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.hub.writing.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.opts.Namespace, Name: r.opts.tableName(), Labels: map[string]string{labelSharding: r.opts.ID},
			Annotations: map[string]string{annotationPool: r.opts.Pool, annotationBuckets: text},
		}}, metav1.CreateOptions{})
	})
	if apierrors.IsAlreadyExists(err) {
		return r.get(ctx, r.opts.tableName())
	}
	return created, err
}

// astray is by how much a clock may differ from that of the local cluster.
const astray = time.Minute

// hubTime returns the time by this replica's clock, or by that of the local cluster if the two differ by much: epochs of a table that was made
// by a clock years ahead would be greater than those of the next. A dry run tells it; where that is not had, the own clock has to do.
func (r *Replica) hubTime(ctx context.Context) time.Time {
	own := r.clock.now().wall
	would, err := ask(ctx, r.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.hub.writing.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.opts.Namespace, GenerateName: r.opts.tableName() + "-",
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	if err != nil || would.CreationTimestamp.IsZero() || own.Sub(would.CreationTimestamp.Time).Abs() < astray {
		return own
	}
	return would.CreationTimestamp.Time
}

// write writes the table, if it has changed. If another was faster, the turn is repeated.
func (t *turn) write(ctx context.Context) error {
	if t.next == nil {
		return nil
	}
	text, err := t.next.Encode()
	if err != nil {
		return fmt.Errorf("writing the table of who owns what: %w", err)
	}
	lease := t.lease.DeepCopy()
	metav1.SetMetaDataLabel(&lease.ObjectMeta, labelSharding, t.opts.ID)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationBuckets, text)
	lease.Spec.HolderIdentity = new(t.s.name)
	lease.Spec.RenewTime = new(metav1.NewMicroTime(t.clock.now().wall))
	written, err := ask(ctx, t.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return t.hub.writing.Update(ctx, lease, metav1.UpdateOptions{})
	})
	switch {
	case apierrors.IsConflict(err):
		t.l.backOff()
		t.look(0)
		return t.doubt(ctx)
	case err != nil:
		_ = t.doubt(ctx) // it may have been written
		return fmt.Errorf("writing the table of who owns what: %w", err)
	}
	t.l.conflicts = 0
	t.l.declined = t.declines
	t.look(0)
	t.mu.Lock()
	t.sawTableLocked(written)
	t.mu.Unlock()
	t.wrote()
	return nil
}

// doubt reads the table again after a write that was refused, or had no answer.
func (t *turn) doubt(ctx context.Context) error {
	t.mu.Lock()
	t.table.doubt = true
	t.mu.Unlock()
	return t.knowTable(ctx, t.s)
}
