package mcmanager

import (
	"context"

	"github.com/go-logr/logr"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/eventlog"
)

// local is the controller-runtime manager of the local cluster. It says once why events are not recorded there.
type local struct {
	manager.Manager
	logger    logr.Logger
	recorders *eventlog.Recorders // of the old API, nil if they are those of Manager
}

func newLocal(cfg *rest.Config, opts Options) (*local, error) {
	if opts.Controller.Logger.GetSink() == nil {
		opts.Controller.Logger = opts.Logger
	}
	if opts.Cache.DefaultWatchErrorHandler == nil {
		opts.Cache.DefaultWatchErrorHandler = tellWatchError
	}
	l := &local{logger: opts.Logger}
	opts.Logger = eventlog.Quiet(opts.Logger, fleet.ReasonOf)
	made, err := manager.New(cfg, opts)
	if err != nil {
		return nil, err
	}
	l.Manager = made
	if opts.EventBroadcaster == nil { //nolint:staticcheck // it can be set
		l.recorders = eventlog.NewRecorders(made.GetScheme(), opts.Logger.WithName("events"), func() (record.EventSink, error) {
			events, err := typedcorev1.NewForConfigAndClient(made.GetConfig(), made.GetHTTPClient())
			if err != nil {
				return nil, err
			}
			return &typedcorev1.EventSinkImpl{Interface: events.Events("")}, nil
		})
	}
	return l, nil
}

// tellWatchError logs why a watch has failed, as client-go does, but not that the manager stops.
func tellWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if ctx.Err() == nil {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// Start implements manager.Manager.
func (l *local) Start(ctx context.Context) error {
	if l.recorders != nil {
		defer l.recorders.End()
	}
	return l.Manager.Start(ctx)
}

// GetLogger implements manager.Manager.
func (l *local) GetLogger() logr.Logger { return l.logger }

// GetEventRecorderFor implements recorder.Provider.
func (l *local) GetEventRecorderFor(name string) record.EventRecorder {
	if l.recorders == nil {
		return l.Manager.GetEventRecorderFor(name) //nolint:staticcheck // manager.Manager has it still
	}
	return l.recorders.For(name)
}
