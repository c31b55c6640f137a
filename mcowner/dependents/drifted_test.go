package dependents

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// applies is a client that takes what is applied as it is.
type applies struct{ client.Client }

// Apply implements client.Client.
func (applies) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// desiring returns what is desired of a dependent, with a value.
func desiring(t *testing.T, value string) *unstructured.Unstructured {
	t.Helper()
	cm := owned(t, ownerNamed("a"))
	cm.Data = map[string]string{"value": value}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cm)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return u
}

// TestWhatOthersHaveChangedWhileNothingRanHasDrifted: the object says what was desired when it was written last. What is desired since
// then is applied.
func TestWhatOthersHaveChangedWhileNothingRanHasDrifted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		written, there string
		want           State
	}{
		"nothing":            {"1", "1", Unchanged},
		"others":             {"1", "by hand", Drifted},
		"the owner":          {"0", "0", Applied},
		"both":               {"0", "by hand", Applied},
		"to what is desired": {"0", "1", Applied}, // the hash is not
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := placing()
			p.writer, p.o, p.engine.access.Timeout = applies{}, newOwnerState(mcreconcile.Request{}, "1"), time.Minute
			written := desiring(t, tc.written)
			if _, err := sealed(written); err != nil {
				t.Fatal(err)
			}
			there := owned(t, ownerNamed("a"))
			there.Annotations, there.Data = written.GetAnnotations(), map[string]string{"value": tc.there}
			k := remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}
			_, got, err := p.change(t.Context(), wanted{kind: k}, there, desiring(t, "1"))
			if err != nil || got != tc.want {
				t.Errorf("it is %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// immutable is a client of an API server that has an object which cannot be changed, until it is deleted.
type immutable struct {
	client.Client

	deleted bool
	as      metav1.Preconditions // of the deletion
	refused error                // what a deletion runs into
}

// Apply implements client.Client.
func (c *immutable) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	if !c.deleted {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a-copy", nil)
	}
	return nil
}

// Create implements client.Client.
func (*immutable) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// Delete implements client.Client.
func (c *immutable) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	c.deleted, c.as = c.refused == nil, *(&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	return c.refused
}

// TestWhatOthersHaveReplacedIsCreatedAnewInAHaltedRollout: it was rolled out before. What is new waits, and what is there stays.
func TestWhatOthersHaveReplacedIsCreatedAnewInAHaltedRollout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		written string
		anew    bool
	}{
		"others have replaced it": {"1", true},
		"the owner says so now":   {"0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, to := placing(), &immutable{}
			p.writer, p.o, p.engine.access.Timeout = to, newOwnerState(mcreconcile.Request{}, "1"), time.Minute
			p.o.progress = Rollout{HaltAfter: 1}.next(nil, hash{})
			p.o.progress.Recall(record.NewFailures(hash{}.String(), []mcreconcile.ClusterName{"other"}))
			written, there := desiring(t, tc.written), owned(t, ownerNamed("a"))
			if _, err := sealed(written); err != nil {
				t.Fatal(err)
			}
			there.Annotations, there.Data = written.GetAnnotations(), map[string]string{"value": "by hand"}
			w := wanted{
				kind:   remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}},
				Policy: Policy{Immutable: Recreate},
			}
			if _, _, err := p.change(t.Context(), w, there, desiring(t, "1")); errors.Is(err, errGoing) != tc.anew || to.deleted != tc.anew {
				t.Fatalf("it is deleted: %t, %v", to.deleted, err)
			}
			if _, _, err := p.create(t.Context(), w, desiring(t, "1")); errors.Is(err, ErrWaiting) == tc.anew || (err == nil) != tc.anew {
				t.Errorf("its creation ends with %v", err)
			}
		})
	}
}

// TestWhatHoldsMoreThanItselfIsCreatedAnewOnlyIfItSaysSo: a policy of all dependents would delete what is in a namespace, the objects of a kind, and
// data, for any change that an API server refuses.
func TestWhatHoldsMoreThanItselfIsCreatedAnewOnlyIfItSaysSo(t *testing.T) {
	t.Parallel()
	for kind, anew := range map[schema.GroupVersionKind]bool{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):                      true,
		corev1.SchemeGroupVersion.WithKind("Namespace"):                      false,
		corev1.SchemeGroupVersion.WithKind("PersistentVolume"):               false,
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"):          false,
		crdKind.WithVersion("v1"):                                            false,
		{Group: "example.com", Version: "v1", Kind: "PersistentVolumeClaim"}: true,
	} {
		t.Run(kind.Kind, func(t *testing.T) {
			t.Parallel()
			for said, want := range map[string]bool{"": anew, string(Recreate): true} {
				p, to := placing(), &immutable{}
				p.writer, p.o, p.engine.access.Timeout = to, newOwnerState(mcreconcile.Request{}, ""), time.Minute
				there, desired := owned(t, ownerNamed("a")), &corev1.ConfigMap{}
				if said != "" {
					desired.Annotations = map[string]string{ImmutableAnnotation: said}
				}
				w := wanted{kind: remote.Untyped(kind), obj: desired, Policy: Policy{Immutable: Recreate}}
				config := desiring(t, "1")
				config.SetGroupVersionKind(kind)
				_, _, err := p.overwrite(t.Context(), w, there, config, fingerprint{})
				if to.deleted != want || !want && !apierrors.IsInvalid(err) {
					t.Errorf("with the annotation %q it is deleted: %t, %v", said, to.deleted, err)
				}
			}
		})
	}
}

// TestWhatIsCreatedAnewIsDeletedAsItWasRead: it may be somebody else's too meanwhile.
func TestWhatIsCreatedAnewIsDeletedAsItWasRead(t *testing.T) {
	t.Parallel()
	p, to, there := placing(), &immutable{}, owned(t, ownerNamed("a"))
	p.writer, p.o, p.engine.access.Timeout = to, newOwnerState(mcreconcile.Request{}, ""), time.Minute
	there.ResourceVersion = "7"
	w := wanted{kind: remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")), Policy: Policy{Immutable: Recreate}}
	if err := p.recreate(t.Context(), w, there, desiring(t, "1"), errors.New("it cannot be changed")); !errors.Is(err, errGoing) {
		t.Fatal(err)
	}
	if want := (metav1.Preconditions{UID: new(there.UID), ResourceVersion: new("7")}); !reflect.DeepEqual(to.as, want) {
		t.Errorf("it was deleted as %v, want %v", to.as, want)
	}
}

// TestWhatGetsAPageIsNotTakenForDeleted to be created anew: a gateway may have answered.
func TestWhatGetsAPageIsNotTakenForDeleted(t *testing.T) {
	t.Parallel()
	page := apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", configMaps, "a-copy", "404 page not found", 0, true)
	for name, tc := range map[string]struct {
		refused error
		deleted bool
	}{
		"it is gone":        {apierrors.NewNotFound(configMaps, "a-copy"), true},
		"a gateway answers": {page, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := placing()
			p.writer, p.o, p.engine.access.Timeout = &immutable{refused: tc.refused}, newOwnerState(mcreconcile.Request{}, ""), time.Minute
			w := wanted{kind: remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")), Policy: Policy{Immutable: Recreate}}
			there := owned(t, ownerNamed("a"))
			there.Name = "a-copy"
			err := p.recreate(t.Context(), w, there, desiring(t, "1"), errors.New("it cannot be changed"))
			if deleted := len(p.o.events) > 0; deleted != tc.deleted || errors.Is(err, errGoing) != tc.deleted {
				t.Errorf("it is deleted: %t, %v", deleted, err)
			}
		})
	}
}
