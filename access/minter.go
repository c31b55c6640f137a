package access

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// minter is what a minter's Secret holds.
type minter struct {
	secret          *corev1.Secret
	token           string
	namespace, name string // of its own account
}

// minterOf reads the Secret of an access. One that was made for another server is not used: whoever edits the access would be
// given the minter's token there. The error shows nothing of what the Secret holds, as it may be any Secret.
func (h *Hub) minterOf(ctx context.Context, a *v1alpha1.ClusterAccess) (minter, error) {
	key := client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.Minter.SecretName}
	secret, err := h.core.Secrets(key.Namespace).Get(quiet(ctx), key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return minter{}, &Error{v1alpha1.ReasonSecretNotFound, fmt.Sprintf("there is no Secret %s with a minter's token", key), nil}
	case apierrors.IsForbidden(err):
		return minter{}, &Error{v1alpha1.ReasonNotAllowed, fmt.Sprintf("the Secret %s cannot be read; the right to get it is missing", key), err}
	case err != nil:
		return minter{}, &Error{v1alpha1.ReasonHub, fmt.Sprintf("the Secret %s cannot be read", key), err}
	}
	for _, k := range []string{v1alpha1.MinterToken, v1alpha1.MinterServer, v1alpha1.MinterNamespace, v1alpha1.MinterServiceAccount} {
		if len(secret.Data[k]) == 0 {
			return minter{}, &Error{v1alpha1.ReasonSecretInvalid, fmt.Sprintf("the Secret %s has no key %q; make it anew", key, k), nil}
		}
	}
	if string(secret.Data[v1alpha1.MinterServer]) != a.Spec.Server {
		return minter{}, mismatch(key, v1alpha1.MinterServer, "spec.server")
	}
	if !bytes.Equal(secret.Data[v1alpha1.MinterCA], a.Spec.CABundle) {
		return minter{}, mismatch(key, v1alpha1.MinterCA, "spec.caBundle")
	}
	if string(secret.Data[v1alpha1.MinterTLSServerName]) != a.Spec.TLSServerName {
		return minter{}, mismatch(key, v1alpha1.MinterTLSServerName, "spec.tlsServerName")
	}
	return minter{
		secret, string(bytes.TrimSpace(secret.Data[v1alpha1.MinterToken])),
		string(secret.Data[v1alpha1.MinterNamespace]), string(secret.Data[v1alpha1.MinterServiceAccount]),
	}, nil
}

func mismatch(secret client.ObjectKey, key, field string) *Error {
	return &Error{v1alpha1.ReasonMismatch, fmt.Sprintf(
		"the key %q of the Secret %s is not what %s says, so the minter's token is sent nowhere: correct what was edited, or let the cluster join anew",
		key, secret, field), nil}
}

// minted asks the cluster for a token of the worker's account, as its minter.
func (h *Hub) minted(ctx context.Context, cfg *rest.Config, a *v1alpha1.ClusterAccess) (Token, error) {
	m, err := h.minterOf(ctx, a)
	if err != nil {
		return Token{}, err
	}
	spec := a.Spec.Minter
	return m.request(ctx, cfg, spec.ServiceAccountNamespace, spec.ServiceAccountName, spec.ExpirationSeconds)
}

// request asks the cluster for a token of one of its accounts.
func (m minter) request(ctx context.Context, cfg *rest.Config, namespace, name string, seconds int64) (token Token, err error) {
	err = Call(cfg, m.token, func(cfg *rest.Config, client *http.Client) error {
		core, err := typedcorev1.NewForConfigAndClient(cfg, client)
		if err == nil {
			token, err = request(ctx, core, namespace, name, seconds)
		}
		return err
	})
	if err == nil {
		return token, nil
	}
	what := fmt.Sprintf("the cluster gives no token of its account %s/%s", namespace, name)
	switch reason := fromAccount(err); {
	case reason != "":
		return Token{}, &Error{reason, what, err}
	case apierrors.IsUnauthorized(err):
		return Token{}, &Error{v1alpha1.ReasonMinterExpired, what + ", since the minter's own token is not accepted any more: let the cluster join anew", nil}
	}
	return Token{}, &Error{fromServer(cfg.Host, err), what, err}
}
