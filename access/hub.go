package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/vantage"
)

// timeout bounds one request.
const timeout = 10 * time.Second

// DefaultExpiration is how long tokens are asked for where an access does not say it.
const DefaultExpiration = time.Hour

// Hub is the cluster with the ClusterAccesses. It is safe for concurrent use.
type Hub struct{ core typedcorev1.CoreV1Interface }

// NewHub returns the hub that a config leads to. Without a client, it makes one of the config. The limit of requests that the config has
// (QPS) does not count, as it is for the hub to say how much is too much: many clusters that are connected at once would each wait for
// their turn, and be told that the hub does not answer.
func NewHub(cfg *rest.Config, client *http.Client) (*Hub, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	if client == nil {
		core, err := typedcorev1.NewForConfig(cfg)
		return &Hub{core}, err
	}
	core, err := typedcorev1.NewForConfigAndClient(cfg, client)
	return &Hub{core}, err
}

// Token makes a token for the account of an access: at the hub if that is federated, or else at the cluster. A token of the hub
// takes the right to create serviceaccounts/token for the account, and one of the cluster the right to get the minter's
// Secret. The error is an [Error].
func (h *Hub) Token(ctx context.Context, a *v1alpha1.ClusterAccess) (Token, error) {
	cfg, err := Config(a.Spec)
	if err != nil {
		return Token{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if a.Spec.Minter != nil {
		return h.minted(ctx, vantage.Config(ctx, cfg), a)
	}
	return h.federated(ctx, a)
}

// federated asks the hub.
func (h *Hub) federated(ctx context.Context, a *v1alpha1.ClusterAccess) (Token, error) {
	spec := a.Spec.Federated
	token, err := request(ctx, h.core, a.Namespace, spec.ServiceAccountName, spec.ExpirationSeconds, audienceOf(a.Spec))
	if err == nil {
		return token, nil
	}
	reason := fromAccount(err)
	if reason == "" {
		reason = v1alpha1.ReasonHub
	}
	return Token{}, &Error{reason, fmt.Sprintf("the hub gives no token of the account %s/%s", a.Namespace, spec.ServiceAccountName), err}
}

// request asks an API server for a token of one of its accounts. Without audiences, it is for that server. A token that lives for less
// than it would be used is an error: others would be asked for without a pause.
func request(
	ctx context.Context, core typedcorev1.ServiceAccountsGetter, namespace, name string, seconds int64, audiences ...string,
) (Token, error) {
	if seconds == 0 {
		seconds = int64(DefaultExpiration.Seconds())
	}
	made := time.Now()
	got, err := core.ServiceAccounts(namespace).CreateToken(quiet(ctx), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, err
	}
	if !isSendable(got.Status.Token) {
		return Token{}, errNoToken
	}
	token := newToken(got.Status, made)
	if token.granted() < renewFloor {
		return Token{}, errTooShort
	}
	return token, nil
}

// quiet returns a context for requests whose bodies, or those of their answers, have a token: client-go logs bodies from level 8 on.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// errNoToken is what becomes of an answer with a text that no request can have as its token.
var errNoToken = errors.New("the API server has granted what cannot be a token")

// errTooShort is what becomes of a token that expires at once, as no API server makes them whose clock is right.
var errTooShort = errors.New("the API server has granted a token that lives for less than a minute, which is not used: look at its clock")
