package dependents

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Bounds of what is kept of an error. API servers quote what they refuse, which may be a megabyte for each object and cluster.
const (
	mostText   = 2 << 10 // in bytes, also of what an answer has besides its message
	mostPart   = 1 << 10 // in bytes, of an error that is part of another one's text
	mostWord   = 100     // in bytes, of such as a field
	mostCauses = 4
	mostParts  = 32
)

// briefError is the beginning of what a long error says, with the parts of it that are not long. They are what errors.Is and errors.As find.
type briefError struct {
	text  string
	parts []error
}

func (e *briefError) Error() string { return e.text }

// Unwrap returns the parts.
func (e *briefError) Unwrap() []error { return e.parts }

// brief returns an error as it may be kept: itself, unless it is long. Errors about several objects are still told apart.
func brief(err error) error { return briefWithin(err, mostText) }

// briefWithin is brief for an error that is part of another one's text.
func briefWithin(err error, most int) error {
	if err == nil || !isLong(err) && len(err.Error()) <= most {
		return err
	}
	if all, ok := err.(faults); ok { //nolint:errorlint // what wraps some is one error
		short := make(faults, len(all))
		for i, one := range all {
			short[i] = brief(one)
		}
		return short
	}
	parts := partsOf(err)
	return &briefError{oneline.Text(err.Error(), most), parts[:min(len(parts), mostParts)]}
}

// partsOf returns the parts of a long error that are not long, or can be made so.
func partsOf(err error) []error {
	if !isLong(err) {
		return []error{err}
	}
	switch err := err.(type) { //nolint:errorlint // it goes through them one by one
	case *apierrors.StatusError:
		return []error{briefStatus(err)}
	case faults:
		return []error{brief(err)}
	case *ConflictError:
		return []error{&ConflictError{Cluster: err.Cluster, Object: err.Object, Why: briefWithin(err.Why, mostPart)}}
	case *ReplacedError:
		return []error{err}
	case *fleet.StateError:
		return []error{&fleet.StateError{Status: err.Status, Err: briefWithin(err.Err, mostPart)}}
	case *url.Error:
		return []error{&url.Error{Op: err.Op, URL: oneline.Text(err.URL, longestName), Err: briefWithin(err.Err, mostPart)}}
	case notSynced:
		return []error{briefNotSynced(err)}
	case interface{ Unwrap() error }:
		if within := err.Unwrap(); within != nil {
			return partsOf(within)
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range err.Unwrap() {
			all = append(all, partsOf(one)...)
		}
		return all
	}
	return []error{errCut}
}

// errCut is a part that says nothing but that there was one: callers are not to decide by the other parts alone.
var errCut = errors.New("the rest of it is not kept")

// notSynced is an error of the fleet, which says that a kind cannot be read.
type notSynced interface {
	error
	NotSynced() (mcreconcile.ClusterName, schema.GroupKind)
}

// notSyncedError is what is kept of a long one. mcbuilder has the work wait for the kind.
type notSyncedError struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
	tried   bool
	why     error
}

func briefNotSynced(err notSynced) *notSyncedError {
	short := &notSyncedError{why: briefWithin(errors.Unwrap(err), mostPart)}
	short.cluster, short.kind = err.NotSynced()
	if source, ok := err.(interface{ IsTried() bool }); ok {
		short.tried = source.IsTried()
	}
	return short
}

func (e *notSyncedError) Error() string {
	return fmt.Sprintf("reading %s of %s: %v", e.kind, remote.ClusterText(e.cluster), e.why)
}

// Is makes it a [fleet.ErrNotReady].
func (*notSyncedError) Is(target error) bool { return target == fleet.ErrNotReady }

func (e *notSyncedError) Unwrap() error { return e.why }

// NotSynced returns what cannot be read.
func (e *notSyncedError) NotSynced() (mcreconcile.ClusterName, schema.GroupKind) {
	return e.cluster, e.kind
}

// IsTried reports whether a source goes on trying.
func (e *notSyncedError) IsTried() bool { return e.tried }

// isLong reports whether an error, or one in it, says more than is kept.
func isLong(err error) bool {
	switch err := err.(type) { //nolint:errorlint // it goes through them one by one
	case nil:
		return false
	case *apierrors.StatusError:
		return len(err.ErrStatus.Message) > mostText || err.ErrStatus.Details.Size() > mostText
	case faults: // each is kept
		return slices.ContainsFunc(err, isLong)
	case interface{ Unwrap() error }:
		if isLong(err.Unwrap()) {
			return true
		}
	case interface{ Unwrap() []error }:
		if slices.ContainsFunc(err.Unwrap(), isLong) {
			return true
		}
	}
	return len(err.Error()) > mostText
}

// briefStatus returns what an API server has answered without most of its text.
func briefStatus(err *apierrors.StatusError) *apierrors.StatusError {
	short := &apierrors.StatusError{ErrStatus: err.ErrStatus}
	short.ErrStatus.Message = oneline.Text(err.ErrStatus.Message, mostText)
	if details := err.ErrStatus.Details; details != nil {
		few := *details
		few.Name, few.UID = oneline.Text(details.Name, longestName), types.UID(oneline.Text(string(details.UID), longestUID))
		few.Group, few.Kind = oneline.Text(details.Group, mostWord), oneline.Text(details.Kind, mostWord)
		few.Causes = nil
		for _, c := range details.Causes[:min(len(details.Causes), mostCauses)] {
			few.Causes = append(few.Causes, metav1.StatusCause{
				Type: metav1.CauseType(oneline.Text(string(c.Type), mostWord)), Field: oneline.Text(c.Field, mostWord), Message: oneline.Text(c.Message, mostWord),
			})
		}
		short.ErrStatus.Details = &few
	}
	return short
}
