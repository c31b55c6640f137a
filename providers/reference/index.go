package reference

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// index says which objects of one kind name a Secret. It is safe for concurrent use.
type index struct {
	mu       sync.Mutex // guards what follows
	bySecret map[client.ObjectKey]map[client.ObjectKey]bool
	byObject map[client.ObjectKey]client.ObjectKey
}

func newIndex() *index {
	return &index{bySecret: map[client.ObjectKey]map[client.ObjectKey]bool{}, byObject: map[client.ObjectKey]client.ObjectKey{}}
}

// set notes which Secret an object names now; the empty key stands for none.
func (i *index) set(obj, secret client.ObjectKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.byObject[obj]
	delete(i.bySecret[before], obj)
	if len(i.bySecret[before]) == 0 {
		delete(i.bySecret, before)
	}
	delete(i.byObject, obj)
	if secret == (client.ObjectKey{}) {
		return
	}
	if i.bySecret[secret] == nil {
		i.bySecret[secret] = map[client.ObjectKey]bool{}
	}
	i.bySecret[secret][obj] = true
	i.byObject[obj] = secret
}

// forget forgets an object.
func (i *index) forget(obj client.ObjectKey) { i.set(obj, client.ObjectKey{}) }

// by returns the objects that name a Secret.
func (i *index) by(secret client.ObjectKey) []client.ObjectKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.bySecret[secret]))
}
