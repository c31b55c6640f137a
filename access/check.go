package access

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Check asks the cluster of an access whom it takes a token for, and returns the name of that user as it is fit to be shown: on one line of at
// most 1024 bytes, and with no token, since the cluster may call the user anything. The token may be one that [Hub.Token] has made. The error is
// an [Error].
func Check(ctx context.Context, a *v1alpha1.ClusterAccess, token Token) (user string, err error) {
	user, err = check(ctx, a, token, refused)
	if a.Spec.Minter != nil && reasonOf(err) == fleet.ReasonNoKind { // an API server of before 1.28: it has made the token, and answers 401 to another
		return shown(token.Subject), nil
	}
	return user, err
}

// maxSubject is how much of the name of a user is shown, in bytes: the CRD lets a status have no more.
const maxSubject = 1024

func shown(user string) string { return oneline.Text(user, maxSubject) }

// checkOwn is [Check] of a token that the cluster has made, also where it accepts the hub's. One that does not tell the user is an error: it may be
// another than the account.
func checkOwn(ctx context.Context, a *v1alpha1.ClusterAccess, token Token) (user string, err error) {
	return check(ctx, a, token, func(context.Context, *v1alpha1.ClusterAccess, *rest.Config, Token) *Error { return refusedOwn() })
}

func check(
	ctx context.Context, a *v1alpha1.ClusterAccess, token Token, refused func(context.Context, *v1alpha1.ClusterAccess, *rest.Config, Token) *Error,
) (user string, err error) {
	cfg, err := Config(a.Spec)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = Call(cfg, token.Value(), func(cfg *rest.Config, client *http.Client) error {
		asked, err := typedauthenticationv1.NewForConfigAndClient(cfg, client)
		if err != nil {
			return err
		}
		review, err := asked.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			user = shown(review.Status.UserInfo.Username)
		}
		return err
	})
	switch {
	case err == nil:
		return user, nil
	case apierrors.IsForbidden(err): // accepted, and without the right that everybody has by default
		return shown(token.Subject), nil
	case apierrors.IsUnauthorized(err):
		return "", refused(ctx, a, cfg, token)
	}
	reason := fromServer(a.Spec.Server, err)
	if reason == v1alpha1.ReasonLoopback {
		return "", &Error{reason, "nothing listens at the server's address, which is another machine for everybody: give one by which the hub reaches the cluster", err}
	}
	return "", &Error{reason, "the cluster cannot be reached", err}
}

// refusedOwn says that a cluster does not accept a token of its own.
func refusedOwn() *Error {
	return &Error{v1alpha1.ReasonTokenRefused, "the cluster does not accept the token that it has made, so another cluster may answer at the address", nil}
}

// refused says why a cluster does not accept a token with which the controllers come, as far as it can be told.
func refused(ctx context.Context, a *v1alpha1.ClusterAccess, cfg *rest.Config, token Token) *Error {
	if a.Spec.Federated == nil {
		return refusedOwn()
	}
	if own, err := ReadIssuer(ctx, cfg); err == nil && own == token.Issuer {
		return &Error{v1alpha1.ReasonEqualIssuers, fmt.Sprintf(
			"the cluster calls itself by the issuer %q, as the hub does, and takes the hub's tokens for forged ones: give one of them another issuer, or use a minter", own), nil}
	}
	return &Error{v1alpha1.ReasonTokenRefused, fmt.Sprintf(
		"the cluster does not accept the hub's token: its AuthenticationConfiguration must trust the issuer %q for the audience %q, and its own issuer must be another",
		token.Issuer, audienceOf(a.Spec)), nil}
}

// ReadIssuer asks an API server by which issuer it calls itself. That takes the right of the ClusterRole
// system:service-account-issuer-discovery, which every service account of the cluster has by default.
func ReadIssuer(ctx context.Context, cfg *rest.Config) (issuer string, err error) {
	err = Call(cfg, cfg.BearerToken, func(cfg *rest.Config, client *http.Client) error {
		address := strings.TrimSuffix(cfg.Host, "/") + "/.well-known/openid-configuration"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("reading the issuer of %s: the server answers %s", cfg.Host, resp.Status)
		}
		var discovery struct {
			Issuer string `json:"issuer"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&discovery); err != nil || discovery.Issuer == "" {
			return fmt.Errorf("reading the issuer of %s: the answer names none", cfg.Host)
		}
		issuer = discovery.Issuer
		return nil
	})
	return issuer, err
}
