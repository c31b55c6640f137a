package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

func TestAnErrorHasAReason(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://a/readyz", Err: err} }
	cases := map[string]error{
		ReasonUnauthorized: apierrors.NewUnauthorized("who are you"),
		ReasonForbidden:    apierrors.NewForbidden(pods, "", errors.New("no")),
		ReasonNoKind:       fmt.Errorf("wrapped: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Foo"}}),
		ReasonCertificate:  get(x509.UnknownAuthorityError{}),
		ReasonDNS:          get(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "nowhere", IsNotFound: true}}),
		ReasonRefused:      get(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}),
		ReasonTimeout:      get(context.DeadlineExceeded),
		ReasonServerError:  apierrors.NewInternalError(errors.New("etcd is gone")),
		ReasonError:        errors.New("something else"),
	}
	for want, err := range cases {
		if got := classify(err); got != want {
			t.Errorf("classify(%v) = %s, want %s", err, got, want)
		}
	}
	discovery := apiutil.ErrResourceDiscoveryFailed{schema.GroupVersion{Version: "v1"}: apierrors.NewForbidden(pods, "", errors.New("no"))}
	if got := classify(&discovery); got != ReasonForbidden {
		t.Errorf("classify(a discovery that was forbidden) = %s, want %s", got, ReasonForbidden)
	}
}

// withReason is an error as the transport of a config may return it, which says more than its cause.
type withReason struct{ error }

func (withReason) Reason() string { return "TokenNotMade" }

func (e withReason) Unwrap() error { return e.error }

func TestAnErrorThatSaysItsReasonHasThat(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "https://a/readyz", Err: withReason{apierrors.NewUnauthorized("who are you")}}
	if got := ReasonOf(err); got != "TokenNotMade" {
		t.Errorf("ReasonOf(%v) = %s, want its own", err, got)
	}
}

func TestEachTimeOutIsOne(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded:             true,
		os.ErrDeadlineExceeded:               true,
		&net.DNSError{IsTimeout: true}:       true,
		apierrors.NewTimeoutError("slow", 0): true,
		apierrors.NewGenericServerResponse(504, "", schema.GroupResource{}, "", "", 0, false): true,
		&net.DNSError{IsNotFound: true}:          false,
		apierrors.NewUnauthorized("who are you"): false,
	} {
		if got := isTimeout(err); got != want {
			t.Errorf("isTimeout(%v) = %t, want %t", err, got, want)
		}
	}
}

type reasoned struct{ reason string }

func (reasoned) Error() string    { return "it is wrong" }
func (r reasoned) Reason() string { return r.reason }

func TestAProvidersErrorMayBringItsReason(t *testing.T) {
	for err, want := range map[error]string{
		reasoned{"Mine"}: "Mine", reasoned{}: ReasonInvalid, errors.New("it is wrong"): ReasonInvalid,
	} {
		if got := reasonInvalid(err); got != want {
			t.Errorf("reasonInvalid(%#v) = %q, want %q", err, got, want)
		}
	}
}

func TestAMessageIsOneShortLine(t *testing.T) {
	got := message(errors.New("first\nsecond\t" + strings.Repeat("é", 1000)))
	if len(got) > maxMessage+len("…") || strings.ContainsAny(got, "\n\t") || !utf8.ValidString(got) {
		t.Errorf("message() = %q", got)
	}
}
