package command

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access"
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

// giveMinter puts a token of the minter into the hub, unless there is one already that the member accepts, and bounds in the member what
// the minter may do with it.
func (j *join) giveMinter(ctx context.Context, hub, member *reached, p joinPlan, a applier) error {
	wanted := membership.MinterSecret(p.target, p.rights.Account, "")
	found := &corev1.Secret{}
	err := hub.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if client.IgnoreNotFound(err) != nil {
		return hub.failed("read", wanted, err)
	}
	kept := err == nil && current(found, wanted) && accepted(ctx, member.config, found)
	if !kept && a.dryRun {
		return j.wouldGive(ctx, hub, member, wanted, p, a)
	}
	token, err := minterToken(ctx, member, p) // also beside one that is kept: the member may have got other audiences since that was made
	if err != nil {
		return err
	}
	audiences := jwt.ClaimsOf(token).Audiences
	if len(audiences) == 0 || slices.Contains(audiences, "") {
		return fmt.Errorf("the token of the minter that the member (%s) has made does not say for whom it is", member.config.Host)
	}
	if err := j.bound(ctx, member, membership.MinterPolicy(p.rights.Account, audiences), a); err != nil || kept {
		return err
	}
	return a.apply(ctx, hub, membership.MinterSecret(p.target, p.rights.Account, token))
}

// wouldGive says in a dry run what becomes of a Secret and of the policy about the minter. It makes no token, which alone tells the audiences.
func (j *join) wouldGive(ctx context.Context, hub, member *reached, secret client.Object, p joinPlan, a applier) error {
	say := func(what, would string) error {
		return a.progress.step(what, func() (string, error) { return would, nil })
	}
	if err := say(hub.name+": "+describe(secret), "would get a new token"); err != nil {
		return err
	}
	policy := membership.MinterPolicy(p.rights.Account, nil)
	found, err := member.have(ctx, policy[0].DeepCopyObject().(client.Object)) //nolint:forcetypeassert // it was one
	if err != nil {
		return err
	}
	if found {
		if err := say(member.name+": "+describe(policy[0]), "would be for the audiences of the new token"); err != nil {
			return err
		}
		policy = policy[1:]
	}
	return j.bound(ctx, member, policy, a)
}

// bound applies the policy about the minter, which clusters before Kubernetes 1.30 do not serve.
func (j *join) bound(ctx context.Context, member *reached, policy []client.Object, a applier) error {
	err := a.apply(ctx, member, policy...)
	if meta.IsNoMatchError(err) {
		tellf(j.streams.ErrOut, "member: it serves no ValidatingAdmissionPolicies, so its rights alone bound what the minter may ask for\n")
		return nil
	}
	return err
}

// current reports whether a Secret is for the same account of the same server.
func current(found, wanted *corev1.Secret) bool {
	for key, value := range wanted.Data {
		if key != accessv1alpha1.MinterToken && !bytes.Equal(found.Data[key], value) {
			return false
		}
	}
	return len(found.Data[accessv1alpha1.MinterToken]) > 0
}

// accepted reports whether the member accepts the token of a Secret, as far as the caller can reach the member.
func accepted(ctx context.Context, config *rest.Config, secret *corev1.Secret) bool {
	namespace, name := string(secret.Data[accessv1alpha1.MinterNamespace]), string(secret.Data[accessv1alpha1.MinterServiceAccount])
	token := string(secret.Data[accessv1alpha1.MinterToken])
	err := access.Call(rest.AnonymousClientConfig(config), token, func(config *rest.Config, c *http.Client) error {
		core, err := coreclient.NewForConfigAndClient(config, c)
		if err == nil {
			_, err = core.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		}
		return err
	})
	return err == nil
}

// minterToken makes a token of the minter.
func minterToken(ctx context.Context, member *reached, p joinPlan) (string, error) {
	minter := membership.Minter(p.rights.Account)
	account := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: minter.Namespace, Name: minter.Name},
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(membership.MinterSeconds))}}
	if err := member.SubResource("token").Create(ctx, account, request); err != nil {
		return "", member.failed("create a token of", account, err)
	}
	if time.Until(request.Status.ExpirationTimestamp.Time) < time.Minute {
		return "", fmt.Errorf("the member (%s) has granted the minter a token that expires at %s: its clock, or yours, is wrong",
			member.config.Host, request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	}
	return request.Status.Token, nil
}
