package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// silent gives no answer to patches.
type silent struct {
	client.Client

	patches int
	says    error // an answer, if it is not nil
}

// Patch implements client.Client.
func (s *silent) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	s.patches++
	return cmp.Or(s.says, context.DeadlineExceeded)
}

// TestWhatASecretHoldsIsNotToldWhenItsNativeReferenceStays: whoever refuses that may quote it.
func TestWhatASecretHoldsIsNotToldWhenItsNativeReferenceStays(t *testing.T) {
	t.Parallel()
	for kind, hidden := range map[string]bool{"Secret": true, "ConfigMap": false} {
		p := placing()
		p.writer, p.o, p.until = &silent{says: apierrors.NewBadRequest("too weak: cGFzc3dvcmQ=")}, newOwnerState(mcreconcile.Request{}, ""), time.Now().Add(time.Hour)
		p.asked.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: "Orphan"}}}
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "1", OwnerReferences: []metav1.OwnerReference{{UID: p.asked.ref.UID}}}}
		all := []dependent{{remote.Untyped(corev1.SchemeGroupVersion.WithKind(kind)), obj}}
		err := p.hideFromGarbageCollector(t.Context(), all, &report{})
		if err == nil || strings.Contains(err.Error(), "too weak") == hidden {
			t.Errorf("of a %s it is told: %v", kind, err)
		}
	}
}

// TestPatchesThatHangHoldAWorkerAboutAsLongAsOne: of many dependents that are to lose their native owner.
func TestPatchesThatHangHoldAWorkerAboutAsLongAsOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left    time.Duration // of the time that a run has
		before  error         // what the run has met
		patches int
	}{
		"there is time":            {left: time.Hour, patches: 3},
		"the time is over":         {patches: 1},
		"something has hung":       {before: context.DeadlineExceeded},
		"something else was wrong": {before: errors.New("it is refused"), patches: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, p := &silent{}, placing()
			p.writer, p.o, p.until = to, newOwnerState(mcreconcile.Request{}, ""), time.Now().Add(tc.left)
			p.asked.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: "Orphan"}}}
			all := make([]dependent, 3)
			for i := range all {
				cm := owned(t, ownerNamed("a"))
				cm.UID, cm.OwnerReferences = types.UID(fmt.Sprint(i)), []metav1.OwnerReference{{UID: p.asked.ref.UID}}
				all[i] = dependent{remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")), cm}
			}
			err := p.hideFromGarbageCollector(t.Context(), all, &report{Result: Result{Err: tc.before}})
			if to.patches != tc.patches || (err != nil) != (tc.patches > 0) {
				t.Errorf("there are %d patches, want %d: %v", to.patches, tc.patches, err)
			}
		})
	}
}
