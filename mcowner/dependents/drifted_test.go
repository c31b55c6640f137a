package dependents

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// applies is a client that takes what is applied as it is.
type applies struct{ client.Client }

// Apply implements client.Client.
func (applies) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// TestWhatOthersHaveChangedWhileNothingRanHasDrifted: the object says what was desired when it was written last. What is desired since
// then is applied.
func TestWhatOthersHaveChangedWhileNothingRanHasDrifted(t *testing.T) {
	t.Parallel()
	desiring := func(value string) *unstructured.Unstructured {
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
			p.writer, p.o, p.engine.access.Timeout = applies{}, newOwnerState(mcreconcile.Request{}), time.Minute
			written := desiring(tc.written)
			if _, err := sealed(written); err != nil {
				t.Fatal(err)
			}
			there := owned(t, ownerNamed("a"))
			there.Annotations, there.Data = written.GetAnnotations(), map[string]string{"value": tc.there}
			k := remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}
			_, got, err := p.change(t.Context(), wanted{kind: k}, there, desiring("1"))
			if err != nil || got != tc.want {
				t.Errorf("it is %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
