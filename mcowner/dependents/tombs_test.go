package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// shelf has the ConfigMap of tombs once somebody has created it: for another owner, when ours is about to.
type shelf struct {
	client.Client

	there *corev1.ConfigMap
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

// Get implements client.Reader.
func (s *shelf) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.there == nil {
		return apierrors.NewNotFound(configMaps, key.Name)
	}
	s.there.DeepCopyInto(obj.(*corev1.ConfigMap)) //nolint:forcetypeassert // nothing else is read
	return nil
}

// Create implements client.Writer.
func (s *shelf) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	s.there = &corev1.ConfigMap{Data: map[string]string{"another": "1"}}
	return apierrors.NewAlreadyExists(configMaps, obj.GetName())
}

// Patch implements client.Writer.
func (s *shelf) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	content, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, s.there)
}

// tombs returns the tombs that are in the ConfigMap.
func (s *shelf) tombs() *tombs {
	return &tombs{
		access: &remote.Access{Timeout: time.Minute}, client: s, reader: s, name: "test",
		namespace: func() (string, error) { return "fleet", nil },
	}
}

// TestTwoOwnersAreNotedAtOnce, the first of all: one creates what the other writes to.
func TestTwoOwnersAreNotedAtOnce(t *testing.T) {
	t.Parallel()
	to := &shelf{}
	ts := to.tombs()
	if err := ts.put(t.Context(), ownerNamed("a")); err != nil {
		t.Fatal(err)
	}
	if is, err := ts.has(t.Context(), ownerNamed("a")); !is || err != nil || to.there.Data["another"] != "1" {
		t.Errorf("the owner is noted: %t, beside %v: %v", is, to.there.Data, err)
	}
}

// TestOneTenantsOwnersLeaveRoomForThoseOfOthers, however many of them are noted: those of each namespace of each cluster have ConfigMaps.
func TestOneTenantsOwnersLeaveRoomForThoseOfOthers(t *testing.T) {
	t.Parallel()
	to := &drawer{there: map[string]*corev1.ConfigMap{}, most: 1 << 10}
	ts := (&shelf{}).tombs()
	ts.client, ts.reader = to, to
	refused := 0
	for i := range 500 {
		if ts.put(t.Context(), ownerNamed(strconv.Itoa(i))) != nil {
			refused++
		}
	}
	if refused < 300 {
		t.Fatalf("%d of one tenant's owners are refused", refused)
	}
	if is, err := ts.has(t.Context(), ownerNamed("0")); !is || err != nil {
		t.Errorf("the first one is noted: %t, %v", is, err)
	}
	for name, of := range map[string]func(*mcowner.Reference){
		"another namespace": func(r *mcowner.Reference) { r.Namespace = "other" },
		"another cluster":   func(r *mcowner.Reference) { r.Cluster = "other" },
		"names that look the same when they are joined": func(r *mcowner.Reference) { r.Cluster, r.Namespace = "source-default", "" },
	} {
		for i := range 20 {
			owner := ownerNamed(strconv.Itoa(i), of)
			if is, err := ts.has(t.Context(), owner); is || err != nil {
				t.Errorf("before it is noted, owner %d of %s is: %t, %v", i, name, is, err)
			}
			if err := ts.put(t.Context(), owner); err != nil {
				t.Fatalf("owner %d of %s: %v", i, name, err)
			}
			if is, err := ts.has(t.Context(), owner); !is || err != nil {
				t.Errorf("owner %d of %s is noted: %t, %v", i, name, is, err)
			}
		}
	}
}

// TestAGatewayThatFindsNothingProvesNothing: it does not say that the ConfigMap is not there.
func TestAGatewayThatFindsNothingProvesNothing(t *testing.T) {
	t.Parallel()
	ts := (&shelf{}).tombs()
	ts.reader = gateway{}
	if is, err := ts.has(t.Context(), ownerNamed("a")); is || !apierrors.IsNotFound(err) {
		t.Errorf("the dependents are to stay: %t, %v", is, err)
	}
	if err := ts.put(t.Context(), ownerNamed("a")); !apierrors.IsNotFound(err) {
		t.Errorf("it is noted: %v", err)
	}
}

// TestANamespaceThatCannotBeReadNowProvesNothing: something may be noted in it. Where no file says it, nothing can be.
func TestANamespaceThatCannotBeReadNowProvesNothing(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	folder := t.TempDir()
	for name, tc := range map[string]struct {
		file    string
		unknown bool
	}{
		"there is no file":       {file: filepath.Join(folder, "namespace")},
		"the file is unreadable": {file: folder, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccounting(t, config{}, &plan{mode: finishing, propagation: metav1.DeletePropagationOrphan})
			a.mustOpen(t)
			a.engine.tombs = (&shelf{}).tombs()
			a.engine.tombs.namespace = func() (string, error) { return config{}.namespaceOfState(tc.file) }
			if is, err := a.engine.isToStay(t.Context(), ownerNamed("a")); is || (err != nil) != tc.unknown {
				t.Errorf("the dependents of an owner that is gone are to stay: %t, %v", is, err)
			}
			if held, err := a.hold(t.Context()); held != tc.unknown || held != (err != nil) {
				t.Errorf("one that was orphaned is held: %t, %v", held, err)
			}
		})
	}
}

// TestWhatSomebodyHasGarbledIsToStay for all owners of the name, and the next that is noted does not end that.
func TestWhatSomebodyHasGarbledIsToStay(t *testing.T) {
	t.Parallel()
	to := &drawer{there: map[string]*corev1.ConfigMap{}, most: 1 << 20}
	ts := (&shelf{}).tombs()
	ts.client, ts.reader = to, to
	before, next := ownerNamed("a"), ownerNamed("a")
	next.UID = "of-the-next"
	if err := ts.put(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	for _, cm := range to.there {
		cm.Data[entry(before)] = "{"
	}
	for _, note := range []bool{false, true} {
		if note {
			if err := ts.put(t.Context(), next); err != nil {
				t.Fatal(err)
			}
		}
		for _, owner := range []mcowner.Reference{before, next} {
			if is, err := ts.has(t.Context(), owner); !is || err != nil {
				t.Errorf("what %s of UID %s had is to stay: %t, %v; the next one is noted: %t", owner, owner.UID, is, err, note)
			}
		}
	}
}

// gateway answers that a page is not there.
type gateway struct{ client.Reader }

// Get implements client.Reader.
func (gateway) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", configMaps, "", "404 page not found", 0, true)
}

// drawer has ConfigMaps by their names.
type drawer struct {
	client.Client

	there map[string]*corev1.ConfigMap
	most  int // bytes of one
}

// Get implements client.Reader.
func (d *drawer) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if d.there[key.Name] == nil {
		return apierrors.NewNotFound(configMaps, key.Name)
	}
	d.there[key.Name].DeepCopyInto(obj.(*corev1.ConfigMap)) //nolint:forcetypeassert // nothing else is read
	return nil
}

// Create implements client.Writer.
func (d *drawer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	cm := obj.(*corev1.ConfigMap) //nolint:forcetypeassert // nothing else is written
	if cm.Size() > d.most {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, cm.Name, nil)
	}
	d.there[cm.Name] = cm
	return nil
}

// Patch implements client.Writer.
func (d *drawer) Patch(ctx context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return d.Create(ctx, obj)
}

// TestHowAnOwnerWentCountsUntilThatIsNoted, although no plan was made of that, and is forgotten then.
func TestHowAnOwnerWentCountsUntilThatIsNoted(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		finalizer string
		uid       types.UID
		says      metav1.DeletionPropagation
		refused   error
		stay      bool
	}{
		"its dependents are to stay":        {finalizer: metav1.FinalizerOrphanDependents, uid: "1", stay: true},
		"they are, and it cannot be noted":  {finalizer: metav1.FinalizerOrphanDependents, uid: "1", stay: true, refused: refused},
		"those of the one before are":       {finalizer: metav1.FinalizerOrphanDependents, uid: "0"},
		"they are to go":                    {finalizer: metav1.FinalizerDeleteDependents, uid: "1"},
		"it says something else about them": {finalizer: metav1.FinalizerOrphanDependents, uid: "1", says: metav1.DeletePropagationBackground},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: string(tc.says)}}}
			a := newAccounting(t, config{}, &plan{owner: said}, "a")
			c, owner := a.engine, a.o.plan.ref
			c.tombs = (&shelf{there: &corev1.ConfigMap{}}).tombs()
			going := deletedOwner(tc.finalizer)
			going.Name, going.UID = a.o.req.Name, tc.uid
			sees := c.deletions.predicate(mcreconcile.LocalCluster, &connected{})
			sees.Update(event.UpdateEvent{ObjectOld: going, ObjectNew: going})
			sees.Delete(event.DeleteEvent{Object: deletedOwner()}) // of another one
			sees.Delete(event.DeleteEvent{Object: going})
			if is, err := c.isToStay(t.Context(), owner); is != tc.stay || err != nil {
				t.Errorf("before it is noted they are to stay: %t, %v, want %t", is, err, tc.stay)
			}
			noted := c.tombs.namespace
			if tc.refused != nil {
				c.tombs.namespace = func() (string, error) { return "", tc.refused }
			}
			if err := c.gone(t.Context(), a.o.req); !errors.Is(err, tc.refused) {
				t.Fatal(err)
			}
			if known := len(c.deletions.seen) > 0; known != (tc.refused != nil) {
				t.Errorf("how it was deleted is known still: %t", known)
			}
			c.tombs.namespace = noted
			if is, err := c.isToStay(t.Context(), owner); is != tc.stay || err != nil {
				t.Errorf("once it is gone they are to stay: %t, %v, want %t", is, err, tc.stay)
			}
		})
	}
}

// TestAnOwnerThatWasNeverReadLeavesWhatIsToStay: it went before it could be planned, as when it is not known which cluster it is in, and
// somebody took its finalizer.
func TestAnOwnerThatWasNeverReadLeavesWhatIsToStay(t *testing.T) {
	t.Parallel()
	placed := record.Record{Sites: []record.Site{{Name: "a"}}}
	for name, tc := range map[string]struct {
		finalizer string
		says      metav1.DeletionPropagation
		policy    Policy
		record    record.Record
		done      bool // all was done for it
		stay      bool
	}{
		"it was deleted so":              {finalizer: metav1.FinalizerOrphanDependents, record: placed, stay: true},
		"it said so":                     {says: metav1.DeletePropagationOrphan, record: placed, stay: true},
		"nobody can tell what it said":   {says: "Orphans", record: placed, stay: true},
		"its policy says so":             {policy: Policy{Keep: true}, record: placed, stay: true},
		"it was given up somewhere":      {policy: Policy{Keep: true}, record: record.Record{GivenUp: true}, stay: true},
		"it was deleted with them":       {finalizer: metav1.FinalizerDeleteDependents, record: placed},
		"nothing says so":                {record: placed},
		"it had none":                    {finalizer: metav1.FinalizerOrphanDependents},
		"it was the controller that did": {finalizer: metav1.FinalizerOrphanDependents, record: placed, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, _ := newPlanning(t, func() (Policy, error) { return tc.policy, nil })
			c.deletions.mayLeave = c.mayLeave
			owner := ownerWith(tc.record, len(tc.record.Sites) > 0)
			if tc.says != "" {
				owner.Annotations[DeletionPolicyAnnotation] = string(tc.says)
			}
			going := owner.DeepCopy()
			going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{tc.finalizer}
			req := requestOf(at.Name(), owner)
			sees := c.deletions.predicate(at.Name(), at.Cluster)
			sees.Create(event.CreateEvent{Object: owner})
			sees.Update(event.UpdateEvent{ObjectOld: owner, ObjectNew: going})
			if tc.done {
				c.deletions.settle(req, owner.UID, at.Cluster)
				sees.Update(event.UpdateEvent{ObjectOld: owner, ObjectNew: going}) // it comes late
			}
			sees.Delete(event.DeleteEvent{Object: owner})
			ref, err := mcowner.ReferenceTo(c.cfg.fleet, at.ID, owner, c.access.Manager.GetScheme())
			if err != nil {
				t.Fatal(err)
			}
			ref.Manager = c.cfg.name
			for _, noted := range []bool{false, true} {
				if is, err := c.isToStay(t.Context(), ref); is != tc.stay || err != nil {
					t.Errorf("its dependents are to stay: %t, %v, want %t; noted is %t", is, err, tc.stay, noted)
				}
				if err := c.gone(t.Context(), req); err != nil || len(c.deletions.seen) > 0 {
					t.Errorf("it is forgotten with the error %v, and known of %d names", err, len(c.deletions.seen))
				}
			}
		})
	}
}
