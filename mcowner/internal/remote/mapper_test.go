package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// discovered is a cluster that serves widgets in one version, or none if that is empty. Each answer takes a second.
type discovered struct {
	cluster.Cluster
	meta.RESTMapper

	version string
	err     error
	asked   atomic.Int32
}

func (d *discovered) GetRESTMapper() meta.RESTMapper { return d }

func (d *discovered) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	d.asked.Add(1)
	<-time.After(time.Second)
	switch {
	case d.err != nil:
		return nil, d.err
	case d.version == "" || kind != widget.GroupKind() || len(versions) > 0 && versions[0] != d.version:
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	default:
		return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(d.version)}, nil
	}
}

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func (d *discovered) mustServe(t *testing.T, a *Access, k schema.GroupVersionKind, served bool, asks int32) {
	t.Helper()
	before := d.asked.Load()
	if is := a.IsUnserved(Session{Cluster: d}, Untyped(k)); is == served {
		t.Errorf("%s is served: %t", k, !is)
	}
	if n := d.asked.Load() - before; n != asks {
		t.Errorf("the cluster was asked %d times for %s, want %d", n, k, asks)
	}
}

// TestAKindThatIsNotServedIsAskedForOnce by all who want to know at the same time, and again after a while, or once it was read.
func TestAKindThatIsNotServedIsAskedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := &discovered{}, &Access{}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if !a.IsUnserved(Session{Cluster: d}, Untyped(widget)) {
					t.Error("it is served")
				}
			})
		}
		all.Wait()
		if n := d.asked.Load(); n != 1 {
			t.Errorf("the cluster was asked %d times", n)
		}
		d.version = "v1"
		d.mustServe(t, a, widget, false, 0)
		a.NoteServed(Session{Cluster: d}, Untyped(widget))
		d.mustServe(t, a, widget, true, 3)
		d.version = ""
		d.mustServe(t, a, widget, false, 1)
		<-time.After(unservedFor)
		d.version = "v1"
		d.mustServe(t, a, widget, true, 3)
		if unserved, _ := a.unserved.Get(Session{Cluster: d}, newUnserved); len(unserved.kinds) > 0 {
			t.Errorf("%v are remembered", unserved.kinds)
		}
	})
}

// TestAVersionThatIsNotServedIsAskedForOnce: others are served.
func TestAVersionThatIsNotServedIsAskedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := &discovered{version: "v2"}, &Access{}
		d.mustServe(t, a, widget, false, 2)
		d.mustServe(t, a, widget, false, 1) // for any version, which the cluster's own mapper knows
		mapping, err := a.Mapper(Session{Cluster: d}).RESTMapping(widget.GroupKind())
		if err != nil || mapping.GroupVersionKind.Version != "v2" {
			t.Errorf("it is served as %+v, %v", mapping, err)
		}
	})
}

// mapped is a cluster with the REST mapper of what its discovery lists.
type mapped struct {
	cluster.Cluster

	mapper meta.RESTMapper
}

func (m *mapped) GetRESTMapper() meta.RESTMapper { return m.mapper }

// TestAListThatAMapperGuessesIsNotServed: it makes one of each kind, and one in each version. A kind of such a name is served.
func TestAListThatAMapperGuessesIsNotServed(t *testing.T) {
	t.Parallel()
	at := Session{Cluster: &mapped{mapper: restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{{
		Group: metav1.APIGroup{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}},
		VersionedResources: map[string][]metav1.APIResource{"v1": {
			{Name: "allows", Kind: "Allow"}, {Name: "allowlists", Kind: "AllowList"}, {Name: "widgets", Kind: "Widget"},
		}},
	}})}}
	for kind, want := range map[string]bool{
		"Allow": true, "AllowList": true, "Widget": true, "AllowListList": false, "WidgetList": false, "List": false, "Other": false,
	} {
		k, a := Untyped(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}), &Access{}
		if _, is, err := a.Served(at, k); is != want || err != nil || a.IsUnserved(at, k) == want {
			t.Errorf("%s is served: %t, want %t: %v", kind, is, want, err)
		}
		k.Version = "v2"
		if served, is, err := a.Served(at, k); is != want || err != nil || is && served.Version != "v1" {
			t.Errorf("%s is served as %v: %t, want %t: %v", kind, served.GroupVersionKind, is, want, err)
		}
	}
}

// TestAKindThatCannotBeAskedForMayBeServed, and is asked for again.
func TestAKindThatCannotBeAskedForMayBeServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := &discovered{err: errors.New("no answer")}, &Access{}
		d.mustServe(t, a, widget, true, 1)
		d.mustServe(t, a, widget, true, 1)
		d.err = nil
		d.mustServe(t, a, widget, false, 1)
		meta.MaybeResetRESTMapper(a.Mapper(Session{Cluster: d}))
		d.mustServe(t, a, widget, false, 1)
	})
}

// TestAKindWhoseAPIHangsIsAskedForOnce in a while: all who need it would wait, one after the other.
func TestAKindWhoseAPIHangsIsAskedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := &discovered{err: fmt.Errorf("discovery: %w", context.DeadlineExceeded)}, &Access{}
		d.mustServe(t, a, widget, true, 1)
		<-time.After(unservedFor - time.Second)
		_, _, err := a.Served(Session{Cluster: d}, Untyped(widget))
		if n := d.asked.Load(); n != 1 || !IsHung(err) {
			t.Errorf("the cluster was asked %d times: %v", n, err)
		}
		err = Scan{}.Each(t.Context(), a, Session{Cluster: d}, Untyped(widget), labels.Everything(), nil) // a list would ask as well
		if n := d.asked.Load(); n != 1 || !IsHung(err) {
			t.Errorf("to list them, the cluster was asked %d times: %v", n-1, err)
		}
		<-time.After(time.Second)
		d.mustServe(t, a, widget, true, 1)
		d.err = nil
		a.NoteServed(Session{Cluster: d}, Untyped(widget))
		d.mustServe(t, a, widget, false, 1)
	})
}

// TestKindsThatAreNotServedAreRememberedUpToABound: there may be any number of them. Those of a while ago make room.
func TestKindsThatAreNotServedAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, _ := newUnserved()
		no := func() error { return noMatch(widget) }
		ask := func(prefix string) {
			for i := range 2 * mostUnserved {
				_ = u.ask(schema.GroupVersionKind{Group: "example.com", Kind: fmt.Sprint(prefix, i)}, no)
			}
			if n := len(u.kinds); n != mostUnserved {
				t.Errorf("%d kinds are remembered, want %d", n, mostUnserved)
			}
		}
		ask("a")
		<-time.After(unservedFor)
		ask("b")
		if _, is := u.kinds[schema.GroupVersionKind{Group: "example.com", Kind: "b0"}]; !is {
			t.Error("those of a while ago are remembered")
		}
	})
}
