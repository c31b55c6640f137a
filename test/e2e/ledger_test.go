package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// ledger is a reconciler of ConfigMaps that notes which version of each it has seen last, as a reconciler that brings
// the object's content elsewhere would have. What it holds at the end is compared with what the cluster holds.
type ledger struct {
	mu       sync.Mutex
	versions map[mcreconcile.Request]string // resource versions, without the objects that are deleted
	runs     map[mcreconcile.ClusterName]int
	barred   map[mcreconcile.ClusterName]bool
	trespass []mcreconcile.Request // reconciles of members that are barred
}

func newLedger() *ledger {
	return &ledger{
		versions: map[mcreconcile.Request]string{},
		runs:     map[mcreconcile.ClusterName]int{},
		barred:   map[mcreconcile.ClusterName]bool{},
	}
}

// Reconcile implements mcreconcile.Reconciler.
func (l *ledger) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	l.enter(req)
	cm := &corev1.ConfigMap{}
	err := mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, req.NamespacedName, cm)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	l.note(req, cm.ResourceVersion)
	return reconcile.Result{}, nil
}

func (l *ledger) enter(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[req.ClusterName]++
	if l.barred[req.ClusterName] {
		l.trespass = append(l.trespass, req)
	}
}

// note writes down the version, and that there is no object if it is empty.
func (l *ledger) note(req mcreconcile.Request, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.barred[req.ClusterName] { // it began before and ends after
		l.trespass = append(l.trespass, req)
	}
	if version == "" {
		delete(l.versions, req)
		return
	}
	l.versions[req] = version
}

// bar forbids reconciles of a member, since it was removed, and forgets its objects: nobody is told which of them are
// deleted until it is a member again.
func (l *ledger) bar(name mcreconcile.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.barred[name] = true
	maps.DeleteFunc(l.versions, func(req mcreconcile.Request, _ string) bool { return req.ClusterName == name })
}

func (l *ledger) allow(name mcreconcile.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.barred[name] = false
}

// mustHeed fails the test if a member was reconciled after its removal.
func (l *ledger) mustHeed(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.trespass) > 0 {
		t.Fatalf("%d reconciles of members that were removed, the first of %s", len(l.trespass), l.trespass[0])
	}
}

// total returns how many reconciles there were for a member.
func (l *ledger) total(name mcreconcile.ClusterName) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[name]
}

// version returns the version of an object that was reconciled last, empty if none was.
func (l *ledger) version(name mcreconcile.ClusterName, obj client.Object) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions[request(name, obj.GetNamespace(), obj.GetName())]
}

// of returns the versions of a member's objects in a namespace, by name.
func (l *ledger) of(name mcreconcile.ClusterName, namespace string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]string{}
	for req, version := range l.versions {
		if req.ClusterName == name && req.Namespace == namespace {
			out[req.Name] = version
		}
	}
	return out
}

// mustAgree waits until exactly what is in the cluster is in the ledger: the last write of every object, and no object
// that was deleted. Nothing may be written any more, but for the writes that were given up since the cluster did not
// answer: it may do them late. So what is in the cluster is read each time.
func (l *ledger) mustAgree(t *testing.T, name mcreconcile.ClusterName, cp *mctest.ControlPlane, namespace string) {
	t.Helper()
	var want, got map[string]string
	agree := false
	defer func() {
		if !agree {
			t.Errorf("%s: versions in the cluster (-) and those reconciled last (+):\n%s", name, cmp.Diff(want, got))
		}
	}()
	eventually(t, fmt.Sprintf("the last write of every object of %s was reconciled", name), func() bool {
		want, got = versions(t, cp, namespace), l.of(name, namespace)
		agree = cmp.Equal(want, got)
		return agree
	})
}

// versions returns the versions of a cluster's objects in a namespace, by name.
func versions(t *testing.T, cp *mctest.ControlPlane, namespace string) map[string]string {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := cp.Client().List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return out
}

// load changes objects of one cluster, until it is ended. Writes that fail are no matter: the cluster's list at the end
// says what was written.
type load struct {
	cp        *mctest.ControlPlane
	namespace string
	objects   int
	cancel    context.CancelFunc
	ended     sync.WaitGroup
	written   atomic.Int64
}

// writeTimeout ends a write to a cluster that does not answer, so that the load goes on once it does.
const writeTimeout = 2 * time.Second

// writeEvery is how often a load writes. Tests run side by side, each with its load: more often, and what they measure is
// how busy the machine is.
const writeEvery = 10 * time.Millisecond

// startLoad updates, deletes and creates so many ConfigMaps, one after the other.
func startLoad(t *testing.T, cp *mctest.ControlPlane, namespace string, objects int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cp: cp, namespace: namespace, objects: objects, cancel: cancel}
	l.ended.Go(func() { l.run(ctx) })
	t.Cleanup(func() { l.end(t) })
	return l
}

func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		if l.write(ctx, fmt.Sprintf("load-%03d", rand.IntN(l.objects)), i) == nil {
			l.written.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// write is not cut short by the end of the load: the cluster might do it nevertheless, later.
func (l *load) write(ctx context.Context, name string, i int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	if i%20 == 19 {
		return client.IgnoreNotFound(l.cp.Client().Delete(ctx, cm))
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"data":{"write":"%d"}}`, i))
	err := l.cp.Client().Patch(ctx, cm, patch)
	if apierrors.IsNotFound(err) {
		err = l.cp.Client().Create(ctx, cm)
	}
	return err
}

// reaches waits until so many more writes have worked.
func (l *load) reaches(t *testing.T, more int64) {
	t.Helper()
	goal := l.written.Load() + more
	eventually(t, fmt.Sprintf("%d more writes to %s", more, l.cp.Name), func() bool { return l.written.Load() >= goal })
}

// end returns once no write is under way. One that a cluster did not answer in time may still be done there.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.cancel()
	l.ended.Wait()
}
