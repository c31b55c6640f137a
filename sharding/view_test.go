package sharding

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// tableLease returns a Lease with a table.
func tableLease(t *testing.T, uid types.UID, table *protocol.Table) *coordinationv1.Lease {
	t.Helper()
	text, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "test.table", UID: uid, ResourceVersion: string(uid) + text[:1], Annotations: map[string]string{annotationBuckets: text},
	}}
}

// sees returns what a replica makes of a Lease that is shown to it.
func (r *Replica) sees(t *testing.T, lease *coordinationv1.Lease) heldTable {
	t.Helper()
	if err := (view{r}).Update(lease); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table
}

// What may mean that the table was deleted or restored is found out by a live read. Until then the replica goes by what it knows.
func TestATableThatMayBeAnotherIsDoubted(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(t *testing.T, r *Replica, known *protocol.Table){
		"OfAnotherUID": func(t *testing.T, r *Replica, known *protocol.Table) { //nolint:thelper // the case
			r.sees(t, tableLease(t, "other", known.Next()))
		},
		"Older": func(t *testing.T, r *Replica, known *protocol.Table) { //nolint:thelper // the case
			older := known.Clone()
			older.Gen--
			r.sees(t, tableLease(t, "uid", older))
		},
		"NotListed": func(t *testing.T, r *Replica, _ *protocol.Table) { //nolint:thelper // the case
			if err := (view{r}).Replace(nil, ""); err != nil {
				t.Error(err)
			}
		},
		"Deleted": func(t *testing.T, r *Replica, known *protocol.Table) { //nolint:thelper // the case
			if err := (view{r}).Delete(tableLease(t, "uid", known)); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, table := seated(t, systemClock{time.Now()})
			known := table.Next()
			if held := r.sees(t, tableLease(t, "uid", known)); held.doubt || held.content.Gen != known.Gen {
				t.Fatalf("the table is %+v", held)
			}
			show(t, r, known)
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.table.doubt || r.table.content == nil || r.table.content.Gen != known.Gen || r.table.lease.UID != "uid" {
				t.Errorf("the table is %+v, want the known one in doubt", r.table)
			}
		})
	}
}

func (r *Replica) peerOf(session string) peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.peers[session]
}

// Whatever is done to the Lease of a session that is fenced, it is no sign of life. What is listed once more is none either.
func TestASessionThatIsFencedIsHeardNoMore(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	other := r.newSession()
	other.number = 1
	lease := other.next()
	lease.UID, lease.ResourceVersion = "uid", "1"
	r.sees(t, lease)
	begun := c.now()
	c.pass(time.Second, time.Second)
	r.sees(t, lease.DeepCopy())
	if got := r.peerOf(other.name); got.heard != begun {
		t.Error("a Lease that is shown once more is a sign of life")
	}
	fenced := lease.DeepCopy()
	fenced.ResourceVersion, fenced.Spec.HolderIdentity = "2", new("")
	r.sees(t, fenced)
	if got := r.peerOf(other.name); got.heard != begun || !got.fenced(other.name) {
		t.Errorf("fencing is a sign of life, or is not seen: %+v", got)
	}
	late := lease.DeepCopy()
	late.ResourceVersion = "0"
	r.sees(t, late)
	if got := r.peerOf(other.name); got.heard != begun || !got.fenced(other.name) {
		t.Errorf("an event that is late brings a session back: %+v", got)
	}
	if err := (view{r}).Replace(nil, ""); err != nil || !r.peerOf(other.name).gone {
		t.Errorf("a Lease that is not listed is there: %v", err)
	}
}

func TestAWatchThatShowsRenewalsIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	r, _ := seated(t, c)
	anew := 0
	r.watching, r.watchAnew = c.now(), func() { anew++ }
	s := r.session
	renew := func(seen bool) {
		s.number++
		s.sentAt[s.number] = c.now()
		s.worked(s.number)
		if seen {
			lease := s.next()
			lease.UID, lease.ResourceVersion = "uid", lease.Annotations[annotationRenewal]
			r.sees(t, lease)
		}
	}
	s.number = 1
	for range 5 {
		c.pass(r.times.renew, r.times.renew)
		renew(true)
		r.checkWatch(s)
	}
	if anew > 0 {
		t.Errorf("the watch was begun anew %d times although it shows each renewal", anew)
	}
	for range 2 {
		c.pass(r.times.renew, r.times.renew)
		renew(false)
		r.checkWatch(s)
	}
	if anew > 0 {
		t.Error("the watch was begun anew although it was silent for a moment only")
	}
	renew(true)
	c.pass(r.times.valid, r.times.valid)
	if r.checkWatch(s); anew > 0 {
		t.Error("the watch was begun anew although the session is suspended, so that there are no renewals to show")
	}
	renew(false)
	if r.checkWatch(s); anew != 1 {
		t.Errorf("the watch was begun anew %d times, want once: it shows no renewal", anew)
	}
}
