package remote

import (
	"cmp"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SecretKind is the kind whose objects are not to be quoted.
var SecretKind = schema.GroupKind{Kind: "Secret"}

// withheldError says that the answer about a Secret was not fit to be shown.
type withheldError struct {
	text string
	err  error
}

func (e *withheldError) Error() string { return e.text }

// Unwrap returns what errors.Is and errors.As look at. Its text is not to be shown.
func (e *withheldError) Unwrap() error { return e.err }

// Withheld returns an error about a Secret without what the API server says, but for its reason. why says why that is not told.
func Withheld(err error, why string) error {
	return &withheldError{fmt.Sprintf("%s, and is not told; its reason is %s", why, cmp.Or(string(apierrors.ReasonForError(err)), "unknown")), err}
}

// ErrorAbout returns an error about an object as it may be shown. Of that the metadata alone may be known, so it cannot be told
// whether an answer quotes a Secret.
func ErrorAbout(k Kind, what string, err error) error {
	if _, answered := errors.AsType[*apierrors.StatusError](err); answered && k.GroupKind() == SecretKind {
		return Withheld(err, what+": the answer may quote what it holds")
	}
	return fmt.Errorf("%s: %w", what, err)
}
