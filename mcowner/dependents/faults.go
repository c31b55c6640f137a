package dependents

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// faults are errors about several objects of one cluster. By its type they are told from one error that wraps several.
type faults []error

func (f faults) Error() string { return errors.Join(f...).Error() }

// Unwrap returns all of them.
func (f faults) Unwrap() []error { return f }

// together returns one error for several objects: what is wrong. What is waited for counts if nothing is wrong, but that objects may not be
// removed, and of that what is tried again soonest, then what is told.
func together(errs ...error) error {
	all := make([]error, 0, len(errs))
	for _, err := range errs {
		all = append(all, each(err)...)
	}
	wrong := slices.DeleteFunc(slices.Clone(all), isPassing)
	awaited := slices.DeleteFunc(all, func(err error) bool { return !isPassing(err) })
	switch {
	case len(awaited) > 0 && isDenied(faults(wrong)):
		return cmp.Or(first(awaited, isOutdated), first(awaited, isTerminating), awaited[0])
	case len(wrong) > 1:
		return faults(wrong)
	default:
		return cmp.Or(wrong...)
	}
}

// each returns the errors about single objects, none for nil.
func each(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := errors.AsType[faults](err); ok {
		return all
	}
	return []error{err}
}

// first returns the first error that is so, nil if none is.
func first(all []error, is func(error) bool) error {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// isPassing reports whether an error about one object says that something must come, or go, first, and that nothing is wrong.
func isPassing(err error) bool { return isUnderway(err) || isTerminating(err) }

// isUnderway reports whether an error says that a cluster is not as desired yet, and nothing is known to be in the way.
func isUnderway(err error) bool {
	return errors.Is(err, ErrPending) || errors.Is(err, ErrWaiting) || errors.Is(err, errGoing) || isOutdated(err) && !errors.Is(err, errContended)
}

// isConflict reports whether an error says that an object which is not the owner's has the place of a dependent.
func isConflict(err error) bool {
	_, is := errors.AsType[*ConflictError](err)
	return is
}

// isFailure reports whether an error says that what is desired cannot be had. What is wrong for a while is no failure, nor what others change back,
// nor what may not be removed.
func isFailure(err error) bool {
	isNone := func(one error) bool {
		return isPassing(one) || errors.Is(one, errContended) || errors.Is(one, errDenied) || errors.Is(one, ErrLeaving) || isUnread(one)
	}
	return first(each(err), func(one error) bool { return errors.Is(one, errStalled) || !isNone(one) }) != nil
}

// isUnread reports whether an error says that something got no answer, or needs a cluster that cannot be used: not all is known that is there.
func isUnread(err error) bool {
	return first(each(err), func(one error) bool { return isUnanswered(one) || remote.IsAway(one) }) != nil
}

// isUnanswered reports whether an error says nothing about what was asked for: there was no answer, or there may be another one soon, such as once
// credentials are replaced.
func isUnanswered(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	passes := answered && (status.ErrStatus.Code >= 500 || status.ErrStatus.Code == http.StatusRequestTimeout)
	_, sending := errors.AsType[*url.Error](err)
	_, broken := errors.AsType[*net.OpError](err) // in the middle of an answer
	return passes || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err) || sending || broken || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// stateOf returns the state of a dependent about which something went wrong.
func stateOf(err error) State {
	switch {
	case isConflict(err):
		return Conflict
	case errors.Is(err, errContended):
		return Drifted
	case isPassing(err):
		return Waiting
	case isUnserved(err):
		return NotServed
	case apierrors.IsForbidden(err):
		return Forbidden
	default:
		return Failed
	}
}

// isTerminating reports whether an error says that a namespace is being deleted, in which nothing can be created.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || errors.Is(err, errNamespaceGoing)
}

// isUnserved reports whether an error says that a cluster does not serve a kind.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) }

func unlessUnserved(err error) error {
	if isUnserved(err) {
		return nil
	}
	return err
}

// isRefused reports whether an API server has refused a request, as far as it is known for good. What is between may say the same of any.
func isRefused(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	passes := isOutdated(err) || isUnanswered(err)
	return is && status.ErrStatus.Code/100 == 4 && !passes && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
