package dependents

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhichDependentsGoWhileKindsCannotBeRead: those of the last wave that there may be. Where nothing is known of a kind, its objects say
// waves if others do.
func TestWhichDependentsGoWhileKindsCannotBeRead(t *testing.T) {
	t.Parallel()
	config, secret := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	namespace := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	of := func(gvk schema.GroupVersionKind, wave string) dependent {
		obj := &corev1.ConfigMap{}
		if wave != "" {
			obj.Annotations = map[string]string{WaveAnnotation: wave}
		}
		return dependent{remote.Untyped(gvk), obj}
	}
	for name, tc := range map[string]struct {
		there  []dependent
		unread []schema.GroupKind
		wrote  map[schema.GroupVersionKind]wave
		now    int
	}{
		"all can be read":               {there: []dependent{of(config, ""), of(namespace, "")}, now: 1},
		"none has a wave":               {there: []dependent{of(config, "")}, unread: []schema.GroupKind{secret.GroupKind()}, now: 1},
		"a namespace waits":             {there: []dependent{of(namespace, "")}, unread: []schema.GroupKind{secret.GroupKind()}},
		"namespaces go last":            {there: []dependent{of(config, "")}, unread: []schema.GroupKind{namespaceKind}, now: 1},
		"another has a wave":            {there: []dependent{of(config, "5"), of(config, "")}, unread: []schema.GroupKind{secret.GroupKind()}},
		"it was written later":          {there: []dependent{of(config, "")}, unread: []schema.GroupKind{secret.GroupKind()}, wrote: map[schema.GroupVersionKind]wave{secret: 1}},
		"it was written before":         {there: []dependent{of(config, "1"), of(config, "")}, unread: []schema.GroupKind{secret.GroupKind()}, wrote: map[schema.GroupVersionKind]wave{secret: 0}, now: 1},
		"one of two was written before": {there: []dependent{of(config, "1")}, unread: []schema.GroupKind{secret.GroupKind(), namespaceKind}, wrote: map[schema.GroupVersionKind]wave{secret: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := placing()
			p.o, p.unread = newOwnerState(mcreconcile.Request{}, "1"), tc.unread
			for gvk, w := range tc.wrote {
				p.o.noteWaves(p.at.Name(), []wanted{{kind: remote.Untyped(gvk), wave: w}, {kind: remote.Untyped(gvk), wave: w - 1}})
			}
			waves, wait := p.lastFirst(tc.there)
			now, all := 0, len(wait)
			for i, wave := range waves {
				if all += len(wave); i == 0 {
					now = len(wave)
				}
			}
			if now != tc.now || all != len(tc.there) {
				t.Errorf("%d of %d go now, of %d; want %d now", now, len(tc.there), all, tc.now)
			}
		})
	}
}

// TestWavesOfAKindThatIsGoneAreForgotten.
func TestWavesOfAKindThatIsGoneAreForgotten(t *testing.T) {
	t.Parallel()
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.wants("one", []schema.GroupVersionKind{secret})
	o.noteWaves("one", []wanted{{kind: remote.Untyped(secret), wave: 3, obj: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}})
	o.parts["one"].present.note(&kindsLook{none: []schema.GroupKind{secret.GroupKind()}})
	if got := o.lastWaveOf(remote.Session{ID: mcowner.ByName("one")}, []schema.GroupKind{secret.GroupKind()}, nil); got != 0 {
		t.Errorf("it is taken for one of wave %d", got)
	}
}

// TestAKindOfWhichNothingWasLeftHoldsUpNoWave although it cannot be read any more, until something of it is wanted, or seen, or the cluster is
// another session's.
func TestAKindOfWhichNothingWasLeftHoldsUpNoWave(t *testing.T) {
	t.Parallel()
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	kinds := []schema.GroupKind{secret.GroupKind()}
	wants := []wanted{{kind: remote.Untyped(secret), wave: 3}}
	o, at := newOwnerState(mcreconcile.Request{}, "1"), placing().at
	present := &o.partLocked(at.Name()).present
	is := func(want wave, when string) {
		t.Helper()
		if got := o.lastWaveOf(at, kinds, nil); got != want {
			t.Errorf("%s, it is taken for one of wave %d, want %d", when, got, want)
		}
	}
	o.noteWaves(at.Name(), wants)
	o.noteRead(at, secret.GroupKind(), true)
	is(3, "once it was written")
	for name, comes := range map[string]func(){
		"read":   func() { o.noteRead(at, secret.GroupKind(), true) },
		"seen":   func() { o.sees(at.Name(), secret) },
		"wanted": func() { o.noteWaves(at.Name(), wants) },
		"likely": func() { o.wants(at.Name(), []schema.GroupVersionKind{secret}) },
		"created, and the cache behind": func() {
			o.remember(dependentKey{cluster: at.Name(), kind: secret.GroupKind()}, fingerprint{})
			o.keep(at.Name(), nil)
		},
	} {
		o.noteRead(at, secret.GroupKind(), false)
		is(noWave, "once there was none")
		comes()
		is(3, "once it is "+name)
	}
	o.noteRead(at, secret.GroupKind(), false)
	present.note(&kindsLook{some: []schema.GroupVersionKind{secret}})
	is(noWave, "if it is not certain that there is none")
	present.emptyIn = "another"
	is(3, "in another session")
	o.noteHung(dependentKey{cluster: at.Name(), kind: secret.GroupKind(), name: types.NamespacedName{Name: "a"}}, true)
	o.noteRead(at, secret.GroupKind(), false)
	is(3, "while a request about it may arrive late")
	present.late[secret.GroupKind()] = time.Now().Add(-mostLate)
	is(noWave, "once that is long ago")
	for i := range 2 * record.MostKinds {
		o.noteRead(at, schema.GroupKind{Kind: strconv.Itoa(i)}, false)
	}
	if n := len(present.empty); n > record.MostKinds {
		t.Errorf("%d kinds are kept", n)
	}
}

// hasOne is a cluster with one object of whatever kind is listed.
type hasOne struct {
	cluster.Cluster
	meta.RESTMapper
	client.Reader

	obj client.Object
}

func (c *hasOne) GetRESTMapper() meta.RESTMapper { return c }

func (*hasOne) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{}, nil
}

func (c *hasOne) GetAPIReader() client.Reader { return c }

func (c *hasOne) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	of := metav1.ObjectMeta{Namespace: c.obj.GetNamespace(), Name: c.obj.GetName(), Annotations: c.obj.GetAnnotations()}
	//nolint:forcetypeassert // so are all lists here
	list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{{ObjectMeta: of}}
	return nil
}

// TestAKindThatTheAPIServerHasHoldsUpWavesAlthoughNothingWasRead in a cache that does not have it yet.
func TestAKindThatTheAPIServerHasHoldsUpWavesAlthoughNothingWasRead(t *testing.T) {
	t.Parallel()
	config := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	p, done := placing(), &report{}
	p.o, p.asked.noted, p.at.Cluster = newOwnerState(mcreconcile.Request{}, "1"), []schema.GroupVersionKind{config}, &hasOne{obj: owned(t, p.asked.ref)}
	p.o.noteWaves(p.at.Name(), []wanted{{kind: remote.Untyped(config), wave: 3}})
	p.o.wants(p.at.Name(), p.asked.noted)
	p.o.noteRead(p.at, config.GroupKind(), false)
	if look := p.lookedFor(t.Context(), nil, nil, nil, done); done.Err != nil || len(look.none) > 0 {
		t.Errorf("there is nothing of %v: %v", look.none, done.Err)
	}
	if got := p.o.lastWaveOf(p.at, []schema.GroupKind{config.GroupKind()}, nil); got != 3 {
		t.Errorf("it is taken for one of wave %d", got)
	}
}
