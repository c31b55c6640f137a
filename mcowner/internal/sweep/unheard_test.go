package sweep

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// unreadable is an ownerless cluster that may not say so: some owners cannot be read, after a while.
type unreadable struct {
	local

	fails func(ctx context.Context, kind, name string) error
}

// GetAPIReader implements cluster.Cluster.
func (u *unreadable) GetAPIReader() client.Reader { return u }

// Get implements client.Reader.
func (u *unreadable) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind == "ConfigMap" || kind == "Secret" {
		if err := u.fails(ctx, kind, key.Name); err != nil {
			return err
		}
	}
	return u.ownerless.Get(ctx, key, obj, opts...)
}

// TestOwnersThatCannotBeReadHoldUpNoOther of their cluster, be it one of them or a kind, as long as that is known at once. Where there is no answer,
// or it takes about as long, a sweep waits for one once for each kind of owners.
func TestOwnersThatCannotBeReadHoldUpNoOther(t *testing.T) {
	t.Parallel()
	failed := apierrors.NewInternalError(errors.New("it cannot be converted"))
	for name, tc := range map[string]struct {
		fails func(ctx context.Context, kind, name string) error
		gone  int           // how many of ten owners of each of two kinds are proved to be gone
		takes time.Duration // besides what the limit takes
	}{
		"a kind fails at once": {gone: 10, fails: func(_ context.Context, kind, _ string) error {
			if kind == "Secret" {
				return failed
			}
			return nil
		}},
		"an owner fails at once": {gone: 18, fails: func(_ context.Context, _, name string) error {
			if name == "owner-0" {
				return failed
			}
			return nil
		}},
		"a kind is silent": {gone: 10, takes: 10 * time.Second, fails: func(ctx context.Context, kind, _ string) error {
			if kind == "Secret" {
				<-ctx.Done()
			}
			return ctx.Err()
		}},
		"all are silent": {takes: 20 * time.Second, fails: func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}},
		"all fail late": {takes: 14 * time.Second, fails: func(context.Context, string, string) error {
			<-time.After(7 * time.Second) // as behind an etcd without a quorum
			return failed
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := knownSweeper(&unreadable{fails: tc.fails})
				secrets := remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Proto: &corev1.Secret{}}
				s.proof.owners, s.limit = append([]remote.Kind{secrets}, s.proof.owners...), newLimit(1000)
				found := &findings{
					pass: &pass{}, turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}, alive: map[ownerKey]struct{}{},
					unheard: map[ownersOf]struct{}{}, unsynced: map[ownersOf]struct{}{},
				}
				began, gone := time.Now(), 0
				for n := range 20 {
					of := mcowner.Reference{
						Fleet: "payments", APIVersion: "v1", Kind: s.proof.owners[n%2].Kind, Namespace: "default", Name: fmt.Sprint("owner-", n/2), UID: "1", ClusterUID: "here",
					}
					if s.whyGone(t.Context(), of, "", found, s.log) != "" {
						gone++
					}
				}
				if took := time.Since(began); gone != tc.gone || took < tc.takes || took > tc.takes+time.Second {
					t.Errorf("%d owners are proved to be gone after %s, want %d after %s", gone, took, tc.gone, tc.takes)
				}
			})
		})
	}
}
