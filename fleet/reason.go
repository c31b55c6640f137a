package fleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/redirect"
)

// Reasons that a [Status] may have. A provider's own problem with a member shows as [ReasonInvalid].
const (
	// ReasonInvalid says that the provider cannot describe the member.
	ReasonInvalid = "Invalid"
	// ReasonRefused says that nothing listens at the address.
	ReasonRefused = "Refused"
	// ReasonTimeout says that no answer came in time.
	ReasonTimeout = "Timeout"
	// ReasonUnauthorized says that the server does not accept the credentials.
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden says that the credentials lack a right.
	ReasonForbidden = "Forbidden"
	// ReasonCertificate says that one side does not trust the other's certificate.
	ReasonCertificate = "Certificate"
	// ReasonDNS says that the host name does not resolve.
	ReasonDNS = "DNS"
	// ReasonServerError says that the server answers with an internal error, or is not ready itself.
	ReasonServerError = "ServerError"
	// ReasonRedirected says that the server answers with a redirect, which is refused.
	ReasonRedirected = "Redirected"
	// ReasonAnotherCluster says that another cluster answers than the one that the member was engaged with.
	ReasonAnotherCluster = "AnotherCluster"
	// ReasonDuplicate says that another member is the same cluster. It is the reason of a member if
	// [Options.RefuseDuplicates] is set, and that of a [Problem] otherwise.
	ReasonDuplicate = "Duplicate"
	// ReasonNoKind says that the cluster does not serve the kind, such as one whose CRD is not installed.
	ReasonNoKind = "NoKind"
	// ReasonNotSynced says that the member is Ready, but kinds are missing: see [Status.NotSynced].
	ReasonNotSynced = "NotSynced"
	// ReasonError stands for everything else.
	ReasonError = "Error"
)

// reasonInvalid is the reason that a provider's error brings, or else ReasonInvalid.
func reasonInvalid(err error) string {
	return cmp.Or(ownReason(err), ReasonInvalid)
}

// ownReason is the reason that an error brings, such as that of a provider whose config gets no token, or "".
func ownReason(err error) string {
	if with, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return with.Reason()
	}
	return ""
}

// classify finds the reason in an error of a request to a cluster.
func classify(err error) string {
	var (
		dns        *net.DNSError
		redirected *redirect.Error
		duplicate  *duplicateError
		state      *StateError
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrAnotherCluster):
		return ReasonAnotherCluster
	case errors.As(err, &redirected):
		return ReasonRedirected
	case errors.As(err, &duplicate):
		return ReasonDuplicate
	case errors.As(err, &state) && state.Status.Reason != "":
		return state.Status.Reason
	case ownReason(err) != "":
		return ownReason(err)
	case apierrors.IsUnauthorized(err):
		return ReasonUnauthorized
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return ReasonNoKind
	case isCertificateError(err):
		return ReasonCertificate
	case errors.As(err, &dns):
		return ReasonDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case isTimeout(err):
		return ReasonTimeout
	case apierrors.ReasonForError(err) != "", apierrors.IsInternalError(err):
		return ReasonServerError
	default:
		return ReasonError
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &netErr) && netErr.Timeout() || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

func isCertificateError(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		alert        tls.AlertError
		header       tls.RecordHeaderError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &invalid) || errors.As(err, &alert) || errors.As(err, &header)
}

// maxMessage is as much of an error as a status shows, in bytes.
const maxMessage = 400

// message is the error's text as it may be shown. net/http has replaced passwords in addresses already.
func message(err error) string {
	if err == nil {
		return ""
	}
	return oneline.Text(err.Error(), maxMessage)
}
