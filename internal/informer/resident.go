package informer

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// resident is an informer as a cache of controller-runtime runs it, for as long as something else lives. That cache keeps
// two goroutines for each informer that it runs, and waits in a third: its contexts are not of the standard library.
// What returns at once costs none of them.
type resident struct {
	*Informer
	life  context.Context //nolint:containedctx // it is what the informer is bound to
	spawn func(func())
}

// LivingFor returns the informer as one that starts when it is run, and is over with life, not with the context of the run,
// or when it is removed. The logger of life is that of its handlers which have none. spawn runs a function in a goroutine. It is
// called once, before anything else.
func (i *Informer) LivingFor(life context.Context, spawn func(func())) toolscache.SharedIndexInformer {
	i.log = klog.FromContext(life)
	return &resident{i, life, spawn}
}

// RunWithContext implements SharedInformer, but does not wait for the end.
func (r resident) RunWithContext(context.Context) {
	r.spawn(func() { r.Informer.RunWithContext(r.life) })
}

// Run implements SharedInformer, but does not wait for the end.
func (r resident) Run(<-chan struct{}) { r.RunWithContext(r.life) }
