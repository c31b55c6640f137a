package access

import (
	"errors"
	"net"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Error is why there is no token. It holds nothing of any token.
type Error struct {
	reason, message string
	cause           error
}

// Reason returns one of the reasons of package v1alpha1, or of package fleet.
func (e *Error) Reason() string { return e.reason }

// maxCause is how much of an error that comes from elsewhere is shown, in bytes.
const maxCause = 300

func (e *Error) Error() string {
	if e.cause == nil {
		return e.message
	}
	return e.message + ": " + oneline.Text(e.cause.Error(), maxCause)
}

// Unwrap returns what was run into, but no answer of an API server: what asks a cluster, and gets no token for that, would take
// it for an answer of that cluster.
func (e *Error) Unwrap() error {
	if e.isAnswer() {
		return nil
	}
	return e.cause
}

// isAnswer reports whether it comes of what an API server has answered.
func (e *Error) isAnswer() bool {
	var answer apierrors.APIStatus
	return errors.As(e.cause, &answer)
}

// reasonOf returns the reason of an error of an access, which may come from anywhere.
func reasonOf(err error) string {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.reason
	}
	return fleet.ReasonOf(err)
}

// fromAccount returns the reason of an answer to what asks for a token of an account, "" if it says nothing about the account.
func fromAccount(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return v1alpha1.ReasonServiceAccountNotFound
	case apierrors.IsForbidden(err):
		return v1alpha1.ReasonNotAllowed
	}
	return ""
}

// fromServer returns the reason of an error of a request to a server.
func fromServer(server string, err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) && isLoopback(server) {
		return v1alpha1.ReasonLoopback
	}
	return fleet.ReasonOf(err)
}

// isLoopback reports whether a server is at an address that is another machine for everybody.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
