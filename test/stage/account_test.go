package stage

import (
	"context"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(Run(m, &pool, func() {})) }

func TestEventsThatAreHeldArriveOnceTheyAreReleased(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	a := NewAccount(t, cp, mctest.Rights{File: "testdata/reader.yaml"})
	caches := startCache(t, a)
	others := startCache(t, NewAccount(t, cp, mctest.Rights{File: "testdata/reader.yaml"})) // nobody holds theirs
	isKnown := func(to cache.Cache, name string) bool {
		err := to.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	create := func(name string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := cp.Client().Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	Eventually(t, "an event arrives", func() bool { return isKnown(caches, "before") })
	release := a.HoldEvents("configmaps")
	create("held")
	Eventually(t, "the event arrives elsewhere", func() bool { return isKnown(others, "held") })
	if isKnown(caches, "held") {
		t.Error("an event that is held has arrived")
	}
	release()
	Eventually(t, "the event arrives", func() bool { return isKnown(caches, "held") })
}

// startCache starts a cache of the namespace default, with the rights of an account.
func startCache(t *testing.T, a *Account) cache.Cache {
	t.Helper()
	caches, err := cache.New(a.config, cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := caches.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return caches
}
