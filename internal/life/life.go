// Package life lets contexts carry how long the cluster can be used that they are about.
package life

import "context"

// Key is the key of a context's value that is the life of an engagement: a context that ends with it. The context of work that
// has joined an engagement answers it, and so does one of [With].
type Key struct{}

// EpochKey is the key of a context's value that is the epoch in which this replica owns the cluster: an int64. There is none where
// replicas do not share clusters.
type EpochKey struct{}

// LeavingKey is the key of a context's value that says whether the cluster is about to leave: an *atomic.Bool.
type LeavingKey struct{}

// With returns a context that belongs to a life which is longer than its own.
func With(ctx, life context.Context) context.Context { return &lasting{ctx, life} }

// Of returns the life that a context belongs to. One that belongs to none has its own.
func Of(ctx context.Context) context.Context {
	if life, ok := ctx.Value(Key{}).(context.Context); ok {
		return life
	}
	return ctx
}

type lasting struct {
	context.Context //nolint:containedctx // it is a context

	life context.Context //nolint:containedctx // it is the value that the outer context carries
}

// Value implements context.Context.
func (l *lasting) Value(key any) any {
	if key == (Key{}) {
		return l.life
	}
	return l.Context.Value(key)
}
