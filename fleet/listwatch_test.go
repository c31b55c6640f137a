package fleet

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// TestAStorageThatIsRestoredBeforeAWatchBeginsIsListedAnew: the list came before the outage, and the watch after it.
func TestAStorageThatIsRestoredBeforeAWatchBeginsIsListedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version, watches := "10", 0
		r := &retrying{
			key: informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, kinds: newKinds(t.Context(), "a"),
			wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)},
			ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					if watches++; watches == 1 {
						version = "5"
						return nil, apierrors.NewServiceUnavailable("away")
					}
					return watch.NewFake(), nil
				},
			}),
		}
		r.kind = r.kinds.stateOf(r.key)
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "10"}); !apierrors.IsResourceExpired(err) {
			t.Errorf("the watch goes on from a version that the server has not reached: %v", err)
		}
		if status := r.kinds.status(); len(status) != 1 || !strings.Contains(status[0].Message, "away") {
			t.Errorf("the status shows %v, want what was wrong before: to list anew is no failure", status)
		}
	})
}

// TestAStorageHasGoneBackIfItsVersionIsEarlier. Versions that cannot be compared say nothing, and none is no version.
func TestAStorageHasGoneBackIfItsVersionIsEarlier(t *testing.T) {
	for name, c := range map[string]struct {
		from, now string
		fails     error
		want      error
		asked     bool
	}{
		"Later":    {from: "10", now: "11", asked: true},
		"Equal":    {from: "10", now: "10", asked: true},
		"Earlier":  {from: "10", now: "9", asked: true, want: apierrors.NewResourceExpired("")},
		"NoNumber": {from: "10", now: "x", asked: true},
		"Any":      {from: "0", now: "9"},
		"Latest":   {from: "", now: "9"},
		"Refused":  {from: "10", fails: errNo, asked: true, want: errNo},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			r := &retrying{kinds: newKinds(t.Context(), "a"), ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					asked = true
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: c.now}}, c.fails
				},
			})}
			err := r.mustNotBeRestored(t.Context(), c.from)
			if classify(err) != classify(c.want) || (err == nil) != (c.want == nil) || asked != c.asked {
				t.Errorf("%v, want %v; it was asked: %t", err, c.want, asked)
			}
		})
	}
}

// TestAWatchThatGoesOnAsksFirstWhetherItMay: not after a list or other credentials, whose versions are the server's.
func TestAWatchThatGoesOnAsksFirstWhetherItMay(t *testing.T) {
	for name, c := range map[string]struct {
		before func(ctx context.Context, r *retrying)
		opts   metav1.ListOptions
		lists  int
	}{
		"it goes on":              {func(context.Context, *retrying) {}, metav1.ListOptions{}, 1},
		"it lists by itself":      {func(context.Context, *retrying) {}, metav1.ListOptions{SendInitialEvents: new(true)}, 0},
		"a list came before":      {func(ctx context.Context, r *retrying) { _, _ = r.ListWithContext(ctx, metav1.ListOptions{}) }, metav1.ListOptions{}, 0},
		"its credentials are new": {func(_ context.Context, r *retrying) { r.wire.current.Store(&generation{}) }, metav1.ListOptions{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lists := 0
			r := &retrying{
				kinds: newKinds(t.Context(), "a"), wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)},
				ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						lists++
						return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
				}),
			}
			r.kind = r.kinds.stateOf(r.key)
			r.wire.current.Store(&generation{})
			r.watched.Store(r.wire.current.Load())
			c.before(t.Context(), r)
			lists = 0
			c.opts.ResourceVersion = "10"
			if _, err := r.WatchWithContext(t.Context(), c.opts); err != nil || lists != c.lists {
				t.Errorf("%v after %d lists, want %d", err, lists, c.lists)
			}
			if r.watched.Load() != r.wire.current.Load() || r.listed.Load() {
				t.Error("it is not noted what the next watch follows")
			}
		})
	}
}

// TestWhatBecomesOfAnAnswer is by what the reflector does next: it lists anew at once, or after a pause, or is not told.
func TestWhatBecomesOfAnAnswer(t *testing.T) {
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "", "", 0, false)
	}
	expired := apierrors.NewResourceExpired("old")
	tooLarge := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 504, Reason: metav1.StatusReasonTimeout,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}},
	}}
	list, from, next := metav1.ListOptions{}, metav1.ListOptions{ResourceVersion: "7"}, metav1.ListOptions{Continue: "x"}
	stream := metav1.ListOptions{SendInitialEvents: new(true)}
	for name, c := range map[string]struct {
		what   stage
		opts   metav1.ListOptions
		listed bool
		errs   []error
		want   verdict
	}{
		"Works":                {listing, list, false, []error{nil}, success},
		"ListRefused":          {listing, from, false, []error{status(400), status(405), status(406), status(422)}, refused},
		"ListMayWorkLater":     {listing, from, false, []error{status(401), status(403), status(404), status(418), status(429), status(500), status(503), errNo}, passing},
		"VersionIsGone":        {listing, from, false, []error{expired, tooLarge, status(410)}, protocol},
		"PageIsGone":           {listing, next, false, []error{expired}, protocol},
		"NoVersionAndGone":     {listing, list, false, []error{expired, status(410)}, refused},
		"StreamRefused":        {watching, stream, false, []error{status(400), status(403), status(404), status(422), expired}, protocol},
		"StreamMayWorkLater":   {watching, stream, false, []error{status(401), status(429), status(503), errNo}, passing},
		"WatchIsExpired":       {watching, from, false, []error{expired, tooLarge}, protocol},
		"WatchIsExpiredAtOnce": {watching, from, true, []error{expired}, refused},
		"WatchRefused":         {watching, from, true, []error{status(400), status(403), status(404), status(405), status(422)}, refused},
		"WatchMayWorkLater":    {watching, from, true, []error{status(401), status(429), status(500), errNo}, passing},
	} {
		for _, err := range c.errs {
			if got := judge(c.what, c.opts, c.listed, err); got != c.want {
				t.Errorf("%s: %v is %d, want %d", name, err, got, c.want)
			}
		}
	}
}

// TestAnAnswerThatIsProtocolChangesNothing: the reflector gets it, and the status does not show it. One that is refused shows.
func TestAnAnswerThatIsProtocolChangesNothing(t *testing.T) {
	answer := error(nil)
	k := newKinds(t.Context(), "a")
	key := informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	r := &retrying{key: key, kind: k.stateOf(key), kinds: k, wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)}, ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{}, answer
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), answer },
	})}
	refused, expired := apierrors.NewBadRequest("no"), apierrors.NewResourceExpired("old")
	steps := []struct {
		opts  metav1.ListOptions
		watch bool
		err   error
		shows bool
	}{
		{metav1.ListOptions{SendInitialEvents: new(true)}, true, refused, false},
		{metav1.ListOptions{ResourceVersion: "7"}, false, expired, false},
		{metav1.ListOptions{}, false, refused, true},
		{metav1.ListOptions{SendInitialEvents: new(true)}, true, refused, true},
		{metav1.ListOptions{}, false, nil, false},
		{metav1.ListOptions{ResourceVersion: ""}, true, refused, true},
		{metav1.ListOptions{SendInitialEvents: new(true)}, true, nil, false},
		{metav1.ListOptions{}, false, refused, true},
		{metav1.ListOptions{SendInitialEvents: new(true)}, true, nil, false},
	}
	for i, step := range steps {
		var err error
		if answer = step.err; step.watch {
			_, err = r.WatchWithContext(t.Context(), step.opts)
		} else {
			_, err = r.ListWithContext(t.Context(), step.opts)
		}
		if (err == nil) != (step.err == nil) || (k.status() != nil) != step.shows {
			t.Errorf("step %d: the reflector gets %v, and the status shows %v", i, err, k.status())
		}
	}
	answer = expired
	if _, err := r.WatchWithContext(t.Context(), steps[0].opts); err == nil || apierrors.IsResourceExpired(err) {
		t.Errorf("the reflector would ask again without a pause: %v", err)
	}
}

// TestTheEndOfAnEngagementIsNoErrorOfItsWatches: client-go would log one for each of them at every drain, and when the manager stops.
func TestTheEndOfAnEngagementIsNoErrorOfItsWatches(t *testing.T) {
	for name, broken := range map[string]bool{"while a watch is being asked for": false, "while the member is away": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logged := &lines{}
				ctx, end := context.WithCancel(logr.NewContext(t.Context(), logged.logger()))
				asked := 0
				r := &retrying{
					key: informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, kinds: newKinds(ctx, "a"),
					wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)},
					ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
						ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
							return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
						},
						WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
							if opts.SendInitialEvents != nil {
								return nil, apierrors.NewBadRequest("this server does not stream lists")
							}
							if asked++; broken {
								return nil, errNo
							}
							<-ctx.Done()
							return nil, ctx.Err()
						},
					}),
				}
				r.kind = r.kinds.stateOf(r.key)
				made := informer.New(r, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
				over := make(chan struct{})
				go func() {
					defer close(over)
					made.RunWithContext(ctx)
				}()
				<-time.After(time.Minute)
				end()
				<-over
				if got := logged.take(); len(got) > 0 || asked == 0 {
					t.Errorf("a watch was asked for %d times, and the log is %q", asked, got)
				}
			})
		})
	}
}

// TestKindsThatManyMembersRefuseToListAreAskedForAtARateOfTheFleet, as those are that they do not serve.
func TestKindsThatManyMembersRefuseToListAreAskedForAtARateOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errNo)
		r := &retrying{
			key: informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, kinds: newKinds(t.Context(), "a"),
			wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)},
			ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					asked++
					return nil, refused
				},
			}),
		}
		r.kind = r.kinds.stateOf(r.key)
		r.kinds.missing.down.Add(9999)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _ = r.ListWithContext(ctx, metav1.ListOptions{})
		if asked < 30 || asked > 60 {
			t.Errorf("one of ten thousand was asked for %d times in an hour, want about every 100 seconds", asked)
		}
		if n := r.kinds.missing.down.Load(); n != 9999 {
			t.Errorf("%d others are counted afterwards, want 9999", n)
		}
	})
}
