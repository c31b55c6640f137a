package remote

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestARemovalTellsNothingThatMayQuoteASecret: the metadata alone may be known. Of other kinds, and where there was no answer, all is
// told.
func TestARemovalTellsNothingThatMayQuoteASecret(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "dependent", errors.New("s3cr3t is in use"))
	for name, tc := range map[string]struct {
		kind string
		err  error
		told bool
	}{
		"ASecret":             {"Secret", refused, false},
		"AConfigMap":          {"ConfigMap", refused, true},
		"ASecretWithNoAnswer": {"Secret", errors.New("no route to s3cr3t"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(tc.kind)}
			obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent"}}
			_, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, &written{err: tc.err}, Session{ID: mcowner.ByName("member")}, k, obj, nil,
				metav1.DeletePropagationBackground)
			if !errors.Is(err, tc.err) || strings.Contains(err.Error(), "s3cr3t") != tc.told {
				t.Errorf("TakeAway returned %v", err)
			}
			if says := tc.kind + ` default/dependent from cluster "member"`; !strings.Contains(err.Error(), says) {
				t.Errorf("it is not told about what: %v", err)
			}
			if !tc.told && !strings.HasSuffix(err.Error(), "its reason is Forbidden") {
				t.Errorf("the reason is not told: %v", err)
			}
		})
	}
}
