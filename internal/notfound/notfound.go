// Package notfound knows what an API server says is not there. Whatever is between may answer 404 as well, as an API server does itself
// for a kind that it does not serve: such a page proves nothing.
package notfound

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Is reports whether an error is the API server's word that there is no object of the name. Of a subresource, it may also say that the kind
// has none.
func Is(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.ErrStatus.Details
	return details != nil && details.Name == name
}

// Ignore returns nil for an error that is the API server's word that there is no object of the name, and any other error.
func Ignore(err error, name string) error {
	if Is(err, name) {
		return nil
	}
	return err
}
