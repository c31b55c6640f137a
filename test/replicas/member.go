package replicas

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// member is a namespace of a real API server, behind a proxy that records what replicas write there.
type member struct {
	cp        *mctest.ControlPlane
	namespace string
	recorder  *stage.Recorder

	mu       sync.Mutex // guards what follows
	made     []made
	asked    int // how many writes of the recorder were looked at
	signed   []signed
	awaiting map[string]bool // changes that nobody has signed
}

// made is a change that the test has made.
type made struct {
	name string
	at   time.Time
}

// signed is a write of a replica.
type signed struct {
	stage.Write

	By     string
	Epoch  int64
	change string
}

func newMember(t *testing.T, cp *mctest.ControlPlane) *member {
	t.Helper()
	return &member{cp: cp, namespace: cp.CreateNamespace(t), recorder: stage.NewRecorder(t, cp), awaiting: map[string]bool{}}
}

// change makes changes until the end.
func (m *member) change(t *testing.T, every time.Duration, end <-chan struct{}) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-end:
			return
		}
		name := fmt.Sprintf("%s%05d", isChange, i)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}
		if err := m.cp.Client().Create(t.Context(), cm); err != nil {
			if t.Context().Err() == nil {
				t.Errorf("making a change: %v", err)
			}
			return
		}
		m.mu.Lock()
		m.made = append(m.made, made{name: name, at: time.Now()})
		m.awaiting[name] = true
		m.mu.Unlock()
	}
}

// read returns what replicas have written, in the order of the answers.
func (m *member) read() []signed {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := m.recorder.Writes(m.asked)
	m.asked += len(writes)
	for _, w := range writes {
		body, change := signatures{}, path.Base(w.Path)
		if !strings.HasPrefix(change, isChange) || json.Unmarshal(w.Body, &body) != nil {
			continue
		}
		epoch, err := strconv.ParseInt(body.Data.Epoch, 10, 64)
		if err != nil {
			continue
		}
		m.signed = append(m.signed, signed{Write: w, By: body.Data.By, Epoch: epoch, change: change})
	}
	return m.signed
}

func (s *signed) worked() bool { return s.Status >= 200 && s.Status < 300 }

// last returns the last write that has worked.
func (m *member) last() *signed {
	all := m.read()
	for i := range slices.Backward(all) {
		if all[i].worked() {
			return &all[i]
		}
	}
	return nil
}

// unsigned returns the changes that were not reconciled.
func (m *member) unsigned() []string {
	all := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range all {
		if all[i].worked() {
			delete(m.awaiting, all[i].change)
		}
	}
	return slices.Sorted(maps.Keys(m.awaiting))
}

// look finds out which changes were reconciled by a write whose answer nobody heard, or that took too long as the server has said. It may
// have been carried out all the same, and nobody writes once more then.
func (m *member) look(t *testing.T) {
	t.Helper()
	unheard := map[string]bool{}
	for _, w := range m.read() {
		unheard[w.change] = unheard[w.change] || w.Status == 0 || w.Status == http.StatusGatewayTimeout
	}
	for _, change := range m.unsigned() {
		if !unheard[change] {
			continue
		}
		cm := &corev1.ConfigMap{}
		if err := m.cp.Client().Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: change}, cm); err == nil && cm.Data["by"] != "" {
			m.mu.Lock()
			delete(m.awaiting, change)
			m.mu.Unlock()
		}
	}
}

// longestGap returns for how long nobody wrote, and since when.
func (m *member) longestGap(since time.Time) (gap time.Duration, at time.Time) {
	before := since
	for _, w := range m.read() {
		if !w.worked() {
			continue
		}
		if w.Answered.After(since) && w.Answered.Sub(before) > gap {
			gap, at = w.Answered.Sub(before), before
		}
		before = w.Answered
	}
	return gap, at
}

// longestPause returns for how long the test has made no change.
func (m *member) longestPause(since time.Time) (pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := since
	for _, change := range m.made {
		if change.at.After(since) {
			pause = max(pause, change.at.Sub(before))
		}
		before = change.at
	}
	return pause
}

// term is the time in which one replica wrote.
type term struct {
	by          string
	epoch       int64
	first, last time.Time // the first write came, and the last was answered
	writes      int
}

// termsOf returns who wrote when, by epoch.
func termsOf(t *testing.T, name fleet.ClusterName, all []signed) []*term {
	t.Helper()
	byEpoch := map[int64]*term{}
	var terms []*term
	for _, w := range all {
		one := byEpoch[w.Epoch]
		if one == nil {
			one = &term{by: w.By, epoch: w.Epoch, first: w.Arrived, last: w.Answered}
			byEpoch[w.Epoch] = one
			terms = append(terms, one)
		}
		if one.by != w.By {
			t.Errorf("%s: %s and %s both wrote with epoch %d", name, one.by, w.By, w.Epoch)
		}
		one.writes++
		if w.Arrived.Before(one.first) {
			one.first = w.Arrived
		}
		if w.Answered.After(one.last) {
			one.last = w.Answered
		}
	}
	slices.SortFunc(terms, func(a, b *term) int { return int(a.epoch - b.epoch) })
	return terms
}

// mustFollow finds out whether the last write of each replica was over before the first of the next one came.
func mustFollow(t *testing.T, name fleet.ClusterName, terms []*term) {
	t.Helper()
	for i, next := range terms {
		for _, before := range terms[:i] {
			if !before.last.Before(next.first) {
				t.Errorf("%s: %s wrote with epoch %d until %s, %s with epoch %d from %s on", name,
					before.by, before.epoch, before.last.Format(time.StampMicro), next.by, next.epoch, next.first.Format(time.StampMicro))
			}
		}
	}
}
