package access

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// perCluster is how many imports of one cluster are worked on side by side.
const perCluster = 4

// lines keep the imports of one cluster from delaying those of others: few of a cluster are worked on at once, and while it does
// not answer, one asks it for all.
type lines struct {
	mu    sync.Mutex // guards what follows
	lines map[client.ObjectKey]*line
}

// line is that of one cluster, by one generation of its access.
type line struct {
	generation int64
	inside     int
	err        error     // why the last attempt failed, for all imports of the cluster; nil if it did not
	next       time.Time // no attempt begins before
	pauses     wait.Backoff
}

// enter lets an import in, which must leave then, or says for how long it is to wait, and what is wrong with the cluster meanwhile.
func (l *lines) enter(a *v1alpha1.ClusterAccess, now time.Time) (in *line, later time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(a)
	of := l.lines[key]
	if of == nil || of.generation != a.Generation { // what was wrong may be right now
		of = &line{generation: a.Generation, pauses: retry.Pauses(checkLatest)}
		l.lines[key] = of
	}
	switch {
	case now.Before(of.next):
		return nil, wait.Jitter(of.next.Sub(now), renewJitter), of.err
	case of.inside >= perCluster || of.err != nil && of.inside > 0:
		return nil, wait.Jitter(time.Second, 1), of.err
	}
	of.inside++
	return of, 0, nil
}

// leaveUnasked ends what enter began where the cluster was not asked, so that nothing is known of it that was not before.
func (l *lines) leaveUnasked(of *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.inside--
}

// leave ends what enter began. The error is one that all imports of the cluster have.
func (l *lines) leave(of *line, now time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.inside--
	if err == nil {
		of.err, of.next, of.pauses = nil, time.Time{}, retry.Pauses(checkLatest)
		return
	}
	of.err = err
	if !now.Before(of.next) { // several that began together fail as one
		of.next = now.Add(of.pauses.Step())
	}
}

// forget forgets a cluster that is gone.
func (l *lines) forget(key client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lines, key)
}
