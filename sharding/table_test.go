package sharding

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// table returns the table as it is now.
func (s *scene) table() *coordinationv1.Lease {
	s.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := s.cp.Client().Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "test.table"}, lease); err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// rewrite changes the text of the table, whoever writes to it meanwhile.
func (s *scene) rewrite(change func(text string) string) {
	s.t.Helper()
	stage.Eventually(s.t, "the table can be written", func() bool {
		lease := s.table()
		lease.Annotations[annotationBuckets] = change(lease.Annotations[annotationBuckets])
		return s.cp.Client().Update(s.t.Context(), lease) == nil
	})
}

func TestATableThatCannotBeReadChangesNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, garbage := range map[string]func(text string) string{
		"Empty":        func(string) string { return "" },
		"NotJSON":      func(string) string { return "{" },
		"OtherVersion": func(text string) string { return strings.Replace(text, `"v":1`, `"v":9`, 1) },
		"OtherNumber":  func(text string) string { return strings.Replace(text, `"buckets":64`, `"buckets":63`, 1) },
		"Large":        func(string) string { return strings.Repeat("x", 200<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 20)
			a, b := s.start("a"), s.start("b")
			s.becomesShared(a, b)
			stage.Eventually(t, "nothing moves any more", func() bool { return len(a.replica.Status().Moves) == 0 })
			var good string
			s.rewrite(func(text string) string {
				good = text
				return garbage(text)
			})
			before := s.owners()
			problem := func() bool { return a.replica.Status().Problem != "" && b.replica.Status().Problem != "" }
			stage.Eventually(t, "both replicas say that there is a problem", problem)
			c := s.start("c")
			stage.Eventually(t, "a new one says so too", func() bool { return c.replica.Status().Problem != "" })
			if got := s.owners(); !maps.Equal(got, before) || len(c.holds()) > 0 {
				t.Errorf("owners were %v and are %v", before, got)
			}
			s.rewrite(func(string) string { return good })
			s.becomesShared(a, b, c)
		})
	}
}

// An older version does not know the table that a newer one has left. docs/install.md says what to do then.
func TestAnOlderVersionBeginsOnceTheTableOfANewerOneIsDeleted(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	newer := s.start("newer")
	s.becomesShared(newer)
	newer.stop()
	s.rewrite(func(text string) string { return strings.Replace(text, `"v":1`, `"v":2`, 1) })
	older := s.start("older")
	stage.Eventually(t, "it says what the matter is", func() bool {
		return strings.Contains(older.replica.Status().Problem, "its version is 2, and not 1")
	})
	if held := older.holds(); len(held) > 0 {
		t.Errorf("it works on %v by a table that it cannot read", held)
	}
	if err := s.cp.Client().Delete(t.Context(), s.table()); err != nil {
		t.Fatal(err)
	}
	s.becomesShared(older)
}

func TestForgedSessionsOwnNothingForLong(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	a.stop() // so that all buckets are free
	s.rewrite(func(text string) string {
		table, err := protocol.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		table = table.Next()
		for i := range 5 {
			if err := table.Join(protocol.Member{Session: fmt.Sprintf("forged-%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		for b := range table.Owner {
			if err := table.Claim(b, table.Sessions[b%5].Session); err != nil {
				t.Fatal(err)
			}
		}
		if text, err = table.Encode(); err != nil {
			t.Fatal(err)
		}
		return text
	})
	b := s.start("b")
	s.becomesShared(b)
	if n := len(b.replica.Status().Replicas); n != 1 {
		t.Errorf("%d sessions are left in the table, want one", n)
	}
}

// Other Leases have the label too, and names that may be taken for ours.
func TestForeignLeasesAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	for _, name := range []string{"other", "test", "test.s", "test.s.x", "test.big.table", "test.s.table", "tester.s.a-12345678"} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Labels: map[string]string{labelSharding: "test"},
		}}
		if err := s.cp.Client().Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	b.kill()
	stage.Eventually(t, "what is killed is taken over, and its Lease is gone", func() bool {
		return len(a.holds()) == 20 && len(s.leases()) == 7+2
	})
}

// The number of buckets in the table counts, whatever a replica was told.
func TestATableKeepsItsNumberOfBuckets(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	b := s.start("b", func(o *Options) { o.Buckets = 128 })
	s.becomesShared(a, b)
	if got := b.replica.Status().Buckets; got != 64 {
		t.Errorf("%d buckets, want 64", got)
	}
}

func TestManyReplicasJoinAtOnce(t *testing.T) {
	t.Parallel()
	replicas := 50
	if os.Getenv("LONG_FAULTS") != "" {
		replicas = 100 // which take four times as much CPU time
	}
	s := newScene(t, 300)
	s.lease = 30 * time.Second // so that little is written beside
	all := make([]*actor, replicas)
	for i := range all {
		all[i] = s.start(fmt.Sprint("r", i), func(o *Options) { o.Settle, o.Buckets = time.Second, 256 })
	}
	stage.Eventually(t, "all have joined", func() bool { return len(all[0].replica.Status().Replicas) == replicas })
	stage.Eventually(t, "each member has an owner, and nothing moves", func() bool {
		status := all[0].replica.Status()
		return len(s.owners()) == 300 && len(status.Moves) == 0 && status.MembersWithoutOwner == 0
	})
	writes := 0
	for _, a := range all {
		writes += a.faults.written()
	}
	t.Logf("%d replicas joined and balanced with %d writes, at generation %+d", replicas, writes,
		all[0].replica.Status().Generation)
}

// The table is as it was earlier, such as after a restore from a backup: what was owned since then is not in it.
func TestATableThatGoesBackMakesAllBeginAnew(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	early := s.table().Annotations[annotationBuckets]
	b := s.start("b")
	s.becomesShared(a, b)
	sessions := []string{a.session(), b.session()}
	s.rewrite(func(string) string { return early })
	stage.Eventually(t, "all have new sessions", func() bool {
		return a.session() != sessions[0] && b.session() != sessions[1]
	})
	s.becomesShared(a, b)
	stage.Eventually(t, "the old sessions are gone", func() bool { return len(a.replica.Status().Replicas) == 2 })
}

// Somebody takes the labels of the table away: nothing tells of its changes any more, until a replica writes it again.
func TestATableWithoutLabelsGetsThemBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	stage.Eventually(t, "the labels are gone", func() bool {
		lease := s.table()
		lease.Labels = nil
		return s.cp.Client().Update(t.Context(), lease) == nil
	})
	b := s.start("b")
	s.becomesShared(a, b)
	if got := s.table().Labels[labelSharding]; got != "test" {
		t.Errorf("the label is %q, want that of the replicas", got)
	}
}

// Somebody takes the annotations of the Lease away whose session does not renew it any more: it is a session's all the same.
func TestADeadSessionIsFencedWhateverItsLeaseHasLost(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	b.kill()
	session := &coordinationv1.Lease{}
	stage.Eventually(t, "the annotations are gone", func() bool {
		key := client.ObjectKey{Namespace: s.namespace, Name: b.replica.opts.leaseName(b.session())}
		if err := s.cp.Client().Get(t.Context(), key, session); apierrors.IsNotFound(err) {
			t.Skip("the machine is so busy that the session is fenced already, and deleted")
		} else if err != nil {
			t.Fatal(err)
		}
		session.Annotations = nil
		return s.cp.Client().Update(t.Context(), session) == nil
	})
	stage.Eventually(t, "the other owns all members", func() bool { return len(a.holds()) == 20 })
	stage.Eventually(t, "the Lease is gone", func() bool { return len(s.leases()) == 2 })
}

// A replica that was removed from the table while it was silent does not join again with the same session: others may have what it owned.
// Here it is alone: another would let it in again before it has seen that, while replicas remove only sessions that they have fenced.
func TestASessionThatWasRemovedFromTheTableIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	log := &lines{}
	b := s.start("b", log.logger())
	s.becomesShared(b)
	var session string
	stage.Eventually(t, "the replica knows that it is in the table", func() bool {
		session = b.session()
		return log.with(`"This replica shares the members now" "sharding"="test" "session"="`+session) > 0
	})
	s.rewrite(func(text string) string {
		table, err := protocol.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		table = table.Next()
		if table.Has(session) {
			if err := table.Bury(session); err != nil {
				t.Fatal(err)
			}
		}
		if text, err = table.Encode(); err != nil {
			t.Fatal(err)
		}
		return text
	})
	stage.Eventually(t, "the replica has another session", func() bool { return b.session() != session })
	s.becomesShared(b)
}

// A session that goes by another table, such as one that was deleted, is not let in.
func TestASessionOfAnotherTableIsNotLetIn(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	a := s.start("a")
	s.becomesShared(a)
	strange := a.replica.newSession()
	strange.described.Annotations[annotationTable] = "another"
	if err := strange.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "it is gone", func() bool {
		if n := len(a.replica.Status().Replicas); n != 1 {
			t.Fatalf("%d sessions are in the table, want one", n)
		}
		return len(s.leases()) == 2
	})
}

// A table from which nobody can count on is mended as the message says: by deleting it.
func TestATableThatHasCountedToItsEndIsMendedByDeletingIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	s.rewrite(func(text string) string {
		table, err := protocol.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		table.Gen = 1 << 62
		if text, err = table.Encode(); err != nil {
			t.Fatal(err)
		}
		return text
	})
	b := s.start("b")
	stage.Eventually(t, "the replicas say that there is a problem", func() bool {
		return a.replica.Status().Problem != "" && b.replica.Status().Problem != ""
	})
	if err := s.cp.Client().Delete(t.Context(), s.table()); err != nil {
		t.Fatal(err)
	}
	s.becomesShared(a, b)
}

// TestAReplicaWorksWhoseClockIsYearsOff: a table begins to count with the time.
func TestAReplicaWorksWhoseClockIsYearsOff(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, by := range map[string]time.Duration{"BeforeItBegan": -90 * year, "Ahead": 100 * year} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 5)
			c := newSkewed(1)
			c.jump(by)
			a := s.startWith("a", c)
			s.becomesShared(a)
			b := s.start("b")
			s.becomesShared(a, b)
		})
	}
}

// TestEpochsDoNotGoBackWhateverClocksSay: a table is made by a replica whose clock is ten years ahead, and deleted while none runs. The
// one that makes the next table knows nothing of it, and its clock is right, or years behind.
func TestEpochsDoNotGoBackWhateverClocksSay(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	const decade = 10 * 365 * 24 * time.Hour
	last := int64(0)
	for i, ahead := range []time.Duration{decade, 0, -decade} {
		c := newSkewed(1)
		c.jump(ahead)
		a := s.startWith(fmt.Sprint("r", i), c)
		s.becomesShared(a)
		for _, tenure := range a.tenures() {
			if tenure.Epoch() <= last {
				t.Errorf("the epoch of a member is %d, and may have been %d before", tenure.Epoch(), last)
			}
		}
		for _, tenure := range a.tenures() {
			last = max(last, tenure.Epoch())
		}
		a.stop()
		if err := s.cp.Client().Delete(t.Context(), s.table()); err != nil {
			t.Fatal(err)
		}
		made := s.time()
		stage.Eventually(t, "the second is over", func() bool { return s.time().After(made) })
	}
}

// time returns what the clock of the local cluster says, in seconds.
func (s *scene) time() time.Time {
	s.t.Helper()
	would := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "time-"}}
	if err := s.cp.Client().Create(s.t.Context(), would, client.DryRunAll); err != nil {
		s.t.Fatal(err)
	}
	return would.CreationTimestamp.Time
}

// TestATableFromBeforeGoesOnWhereTheLastOneWas: the table is deleted while replicas run, and an old copy of it, or one that was made by a
// clock that is behind, is created in its place before one of them can.
func TestATableFromBeforeGoesOnWhereTheLastOneWas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*protocol.Table) *protocol.Table{
		"OldCopy":     func(old *protocol.Table) *protocol.Table { return old },
		"ClockBehind": func(old *protocol.Table) *protocol.Table { return protocol.New(old.Buckets(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 20)
			a := s.start("a")
			s.becomesShared(a)
			old := s.table()
			b := s.start("b")
			s.becomesShared(a, b)
			sessions, epochs := []string{a.session(), b.session()}, s.epochs(a, b)
			content, err := protocol.Decode(old.Annotations[annotationBuckets])
			if err != nil {
				t.Fatal(err)
			}
			text, err := change(content).Encode()
			if err != nil {
				t.Fatal(err)
			}
			s.replaceTable(text)
			s.areNewSessions(sessions, a, b)
			s.epochsAreGreater(epochs, a, b)
		})
	}
}

// TestATableThatTakesThePlaceOfAnUnreadableOneIsNoOlder: it is mended by an old copy, or deleted and made from that.
func TestATableThatTakesThePlaceOfAnUnreadableOneIsNoOlder(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(s *scene, old string){
		"Mended": func(s *scene, old string) {
			unreadable := s.table()
			mended := unreadable.DeepCopy()
			mended.Annotations[annotationBuckets] = old
			if err := s.cp.Client().Patch(s.t.Context(), mended, client.MergeFrom(unreadable)); err != nil {
				s.t.Fatal(err)
			}
		},
		"Replaced": func(s *scene, old string) { s.replaceTable(old) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 20)
			a := s.start("a")
			s.becomesShared(a)
			old := s.table().Annotations[annotationBuckets]
			b := s.start("b")
			s.becomesShared(a, b)
			sessions := []string{a.session(), b.session()}
			epochs := s.epochs(a, b)
			s.replaceTable("{")
			stage.Eventually(t, "they say that the table cannot be read", func() bool {
				return strings.Contains(a.replica.Status().Problem, "table") && strings.Contains(b.replica.Status().Problem, "table")
			})
			mend(s, old)
			s.areNewSessions(sessions, a, b)
			s.epochsAreGreater(epochs, a, b)
		})
	}
}

// areNewSessions waits until replicas share the members anew, after the table of their sessions was lost.
func (s *scene) areNewSessions(before []string, actors ...*actor) {
	s.t.Helper()
	stage.Eventually(s.t, "they have other sessions", func() bool {
		return !slices.ContainsFunc(actors, func(a *actor) bool { return a.session() == "" || slices.Contains(before, a.session()) })
	})
	s.becomesShared(actors...)
}

// epochs returns those of what replicas hold.
func (s *scene) epochs(actors ...*actor) map[fleet.ClusterName]int64 {
	all := map[fleet.ClusterName]int64{}
	for _, a := range actors {
		a.worker.mu.Lock()
		for name, tenure := range a.worker.held {
			all[name] = tenure.Epoch()
		}
		a.worker.mu.Unlock()
	}
	return all
}

func (s *scene) epochsAreGreater(than map[fleet.ClusterName]int64, actors ...*actor) {
	s.t.Helper()
	for name, epoch := range s.epochs(actors...) {
		if epoch <= than[name] {
			s.t.Errorf("the epoch of %s is %d, and was %d before", name, epoch, than[name])
		}
	}
}

// replaceTable deletes the table and creates another of that content, before a replica does.
func (s *scene) replaceTable(content string) {
	s.t.Helper()
	last, replicas := s.table(), s.all()
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: last.Namespace, Name: last.Name, Labels: last.Labels,
		Annotations: map[string]string{annotationPool: "", annotationBuckets: content},
	}}
	for _, a := range replicas {
		a.faults.all(refuse)
	}
	err := errors.Join(s.cp.Client().Delete(s.t.Context(), last), s.cp.Client().Create(s.t.Context(), other))
	for _, a := range replicas {
		a.faults.all(pass)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
