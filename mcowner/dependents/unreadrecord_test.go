package dependents_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// services is as spread is, of Services, which have conditions. told is when a status was asked for last.
func (w *world) services(told *atomic.Pointer[time.Time]) *dependents.Reconciler[*corev1.Service] {
	return &dependents.Reconciler[*corev1.Service]{
		Fleet: fleetName, Name: controller,
		OwnersIn: mcowner.Clusters{Local: true},
		Kinds:    []client.Object{&corev1.ConfigMap{}},
		Targets: func(_ context.Context, owner *corev1.Service) ([]mcreconcile.ClusterName, error) {
			return targetsOf(&corev1.ConfigMap{ObjectMeta: owner.ObjectMeta}), nil
		},
		Desired: func(_ context.Context, owner *corev1.Service, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(owner.Namespace, copyOf(owner.Name))}}, nil
		},
		Status: func(_ context.Context, owner *corev1.Service, results []dependents.Result) error {
			if owner.Namespace == w.ns {
				told.Store(new(time.Now()))
				dependents.Summarize(results).SetConditions(&owner.Status.Conditions, owner.Generation)
			}
			return nil
		},
		Sweep: orphans.Sweep{Interval: time.Hour},
	}
}

// serve creates the Service a, and waits until a member has what it is to have there.
func (w *world) serve(in *mctest.ControlPlane) {
	w.t.Helper()
	w.create(w.Local, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "a", Annotations: map[string]string{"to": in.Name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	w.isSynced(dependents.ReasonDone, "1 of 1")
}

// service returns the Service a, nil if it is gone.
func (w *world) service() *corev1.Service {
	w.t.Helper()
	s := &corev1.Service{}
	if err := w.Local.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, s); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return s
}

// annotate sets an annotation of the Service, or takes it away where the value is empty.
func (w *world) annotate(key, value string) {
	w.t.Helper()
	s := w.service()
	patch := client.MergeFrom(s.DeepCopy())
	if s.Annotations[key] = value; value == "" {
		delete(s.Annotations, key)
	}
	if err := w.Local.Client().Patch(w.t.Context(), s, patch); err != nil {
		w.t.Fatal(err)
	}
}

// isSynced waits until the Service says for this reason, and with this text, whether it is.
func (w *world) isSynced(reason, text string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the Service says %s: %s", reason, text), func() bool {
		c := meta.FindStatusCondition(w.service().Status.Conditions, dependents.ConditionSynced)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, text)
	})
}

// kindsKey is the annotation of a record that has kinds.
const kindsKey = domain + "/kinds"

// tooManyKinds is more than a record has.
func tooManyKinds() string {
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprintf("Made%d.v1.up.example.com", i)
	}
	return strings.Join(many, ",")
}

// TestStatusSaysWhyTheRecordCannotBeRead, and ever less is asked for that. What the owner has stays, also once it is being deleted, until the record
// is mended.
func TestStatusSaysWhyTheRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var told atomic.Pointer[time.Time]
	p := w.run(w.services(&told))
	w.serve(one)
	eventually(t, "the program is at rest", p.isAtRest)
	before := w.service().Annotations[kindsKey]
	w.annotate(kindsKey, tooManyKinds())
	w.isSynced(dependents.ReasonFailed, "more than 256")
	w.told(w.Local, "a", dependents.EventFailed, "more than 256")
	w.annotate(kindsKey, before)
	w.isSynced(dependents.ReasonDone, "1 of 1")
	eventually(t, "the program is at rest", p.isAtRest)

	w.annotate(kindsKey, tooManyKinds())
	w.isSynced(dependents.ReasonFailed, "more than 256")
	eventuallyWithin(t, 30*time.Second, "no status was asked for in the last second", func() bool { return time.Since(*told.Load()) > time.Second })
	there := w.mustGet(one, copyOf("a"))
	w.annotate("to", "")
	last := time.Now()
	if err := w.Local.Client().Delete(t.Context(), w.service()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there was an account of the owner since", func() bool { return told.Load().After(last) })
	eventually(t, "the program is at rest", p.isAtRest)
	w.isSynced(dependents.ReasonFailed, "more than 256")
	w.unharmed(one, there)
	w.annotate(kindsKey, before)
	w.isGone(one, copyOf("a"))
	eventually(t, "the Service is gone", func() bool { return w.service() == nil })
}

// TestStatusSaysWhyTheRecordCannotBeReadAfterAStart, which it is to be read for.
func TestStatusSaysWhyTheRecordCannotBeReadAfterAStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var told atomic.Pointer[time.Time]
	p := w.run(w.services(&told))
	w.serve(one)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	before, there := w.service().Annotations[kindsKey], w.mustGet(one, copyOf("a"))
	w.annotate(kindsKey, tooManyKinds())
	p = w.run(w.services(&told))
	w.isSynced(dependents.ReasonFailed, "0 of 1")
	w.isSynced(dependents.ReasonFailed, "more than 256")
	eventually(t, "the program is at rest", p.isAtRest)
	w.unharmed(one, there)
	w.annotate(kindsKey, before)
	w.isSynced(dependents.ReasonDone, "1 of 1")
	w.unharmed(one, there)
}

// TestStatusSaysWhySlicesCannotBeRead, and since when. Nobody tells when they can.
func TestStatusSaysWhySlicesCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	one := w.Members[0]
	r := w.sliced()
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	isDone := func() bool { return dependents.Summarize(told.of("a")).Done == 2 }
	eventually(t, "it is done, and all is written", func() bool { return isDone() && p.isAtRest() })
	since := time.Now()
	readAgain := p.refuse(http.MethodGet, w.Local, "/dependentslices")
	w.editSlice(one.Name, func(s *v1alpha1.DependentSlice) { s.Clusters = nil })
	eventually(t, "the status says so", func() bool {
		s := dependents.Summarize(told.of("a"))
		return s.Failed == 2 && strings.Contains(s.FirstError.Error(), "reading the slices")
	})
	if got := told.of("a")[1].Since; got.Before(since) {
		t.Errorf("it says that it is so since %s, and it is since %s", got, since)
	}
	readAgain()
	eventually(t, "it is done again", isDone)
	w.areSliced(w.Members...)
}
