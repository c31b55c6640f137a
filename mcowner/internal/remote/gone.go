package remote

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNotThere reports whether an error is the API server's word that there is no such object. It also says not found when it
// does not serve the kind, and so may whatever is between.
func IsNotThere(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.ErrStatus.Details
	return details != nil && details.Name == name
}
