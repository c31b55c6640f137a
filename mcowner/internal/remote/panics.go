package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// errPanic says that a function of the user has panicked.
var errPanic = errors.New("panic")

// Recovered makes a panic the error of a function. It is deferred.
func Recovered(ctx context.Context, err *error) {
	if panicked := PanicOf(ctx, recover()); panicked != nil {
		*err = panicked
	}
}

// PanicOf returns an error for what recover has returned, nil if there was no panic. The log has the stack.
func PanicOf(ctx context.Context, value any) error {
	if value == nil {
		return nil
	}
	err := fmt.Errorf("%w: %v", errPanic, value)
	log.FromContext(ctx).Error(err, "Recovered", "stack", string(debug.Stack()))
	return err
}
