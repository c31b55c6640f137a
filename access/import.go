package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

const (
	// importCheckEvery is how often a cluster is asked whether it still accepts the token of an import. An account that was
	// deleted and created again shows no other way, and API servers remember a token for ten seconds.
	importCheckEvery = 10 * time.Second
	// importLatest is the longest pause between attempts for an account that does not exist, or may not be imported by the
	// cluster's rights.
	importLatest = 15 * time.Second
)

// keep keeps the Secret of an import, and returns when to do so again. An error is one of the hub's API, after which nothing is to
// be said.
func (r *importer) keep(ctx context.Context, i *v1alpha1.ServiceAccountImport) (time.Duration, error) {
	if i.Status.Undecoded {
		if err := r.forgetStatus(ctx, i); err != nil {
			return 0, err
		}
	}
	a, err := r.allowedAccess(ctx, i)
	if _, refused := errors.AsType[*Error](err); refused {
		return r.takeBack(ctx, i, err)
	}
	if err != nil {
		return 0, err
	}
	if a.Spec.Paused {
		importNotReady(i, &Error{v1alpha1.ReasonPaused, "spec.paused of the ClusterAccess is set, so no tokens are made", nil})
		return 0, nil
	}
	if i.Spec.DecodeError != "" {
		importNotReady(i, invalid("the spec cannot be decoded: "+oneline.Text(i.Spec.DecodeError, maxCause)))
		return 0, nil
	}
	line, later, err := r.lines.enter(a, time.Now())
	if line == nil {
		if err != nil {
			importNotReady(i, err)
		}
		return later, nil
	}
	asked, err := r.renew(ctx, i, a)
	if of := ofCluster(err); asked || of != nil {
		r.lines.leave(line, time.Now(), of)
	} else {
		r.lines.leaveUnasked(line)
	}
	own, isOwn := errors.AsType[*Error](err)
	switch {
	case isOwn:
		return importNotReady(i, own), nil
	case err != nil:
		return 0, err
	}
	setCondition(&i.Status.Conditions, i.Generation, v1alpha1.ConditionReady, metav1.ConditionTrue, nil)
	return wait.Jitter(r.pace.checkEvery, renewJitter), nil
}

// forgetStatus takes the whole status of an import away. Later patches have single fields, and would let others stay that cannot be decoded.
func (r *importer) forgetStatus(ctx context.Context, i *v1alpha1.ServiceAccountImport) error {
	none := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":null}`, i.ResourceVersion)
	i.Status = v1alpha1.ServiceAccountImportStatus{}
	return r.client.Status().Patch(ctx, i, client.RawPatch(types.MergePatchType, none))
}

// importedRefused says that a cluster does not accept a token that was just made for an import. That is about its account, which may be being
// deleted.
type importedRefused struct{ error }

func (e importedRefused) Unwrap() error { return e.error }

// ofCluster returns an error that all imports of the cluster have, nil for another, such as one of the hub's. What an API server answers is about
// one import: a policy of the cluster may refuse what that asks for.
func ofCluster(err error) error {
	own, isOwn := errors.AsType[*Error](err)
	_, refused := errors.AsType[importedRefused](err)
	if !isOwn || refused || own.isAnswer() {
		return nil
	}
	switch own.reason {
	case v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonAnotherUser, v1alpha1.ReasonSecretExists, v1alpha1.ReasonHub:
		return nil
	}
	return own
}

// importNotReady sets the condition, and returns when to try again: the later, the longer it has not worked. What was wrong for a minute is seen
// to be right within five seconds.
func importNotReady(i *v1alpha1.ServiceAccountImport, err error) time.Duration {
	setCondition(&i.Status.Conditions, i.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, err)
	since := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	return wait.Jitter(min(max(time.Since(since.Time)/16, time.Second), importLatest), renewJitter)
}

// renew makes a token if the one in the Secret does not serve any more, and writes the Secret at once, whole. Until then, the
// Secret stays as it is. asked says that the cluster was asked for something: where the hub refuses first, nothing is known of it.
func (r *importer) renew(ctx context.Context, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess) (asked bool, err error) {
	secret, err := r.secretOf(ctx, i, secretName(i))
	if err != nil {
		return false, err
	}
	if secret != nil && !metav1.IsControlledBy(secret, i) {
		return false, &Error{v1alpha1.ReasonSecretExists, fmt.Sprintf(
			"the Secret %s/%s exists and is not of this import: delete it, or give spec.secretName another name", secret.Namespace, secret.Name), nil}
	}
	if secret != nil {
		if serves, asked, err := r.serves(ctx, i, a, secret); serves || err != nil {
			return asked, err
		}
	}
	ask, err := r.hub.importing(ctx, i, a)
	if err != nil {
		return false, err
	}
	token, err := ask(ctx)
	if err != nil {
		return true, err
	}
	return true, r.take(ctx, i, a, secret, token)
}

// take writes a token into the Secret of an import, once the cluster accepts it.
func (r *importer) take(
	ctx context.Context, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess, secret *corev1.Secret, token Token,
) error {
	user, err := checkOwn(ctx, a, token)
	if own, ok := errors.AsType[*Error](err); ok && own.reason == v1alpha1.ReasonTokenRefused {
		return importedRefused{own}
	}
	if err != nil {
		return err
	}
	if user != subjectOf(i) {
		return &Error{v1alpha1.ReasonAnotherUser, fmt.Sprintf(
			"the cluster takes a token of the account %s/%s for the user %q, as a gateway does that calls users by other names: give the address of the API server itself",
			i.Spec.Namespace, i.Spec.Name, oneline.Text(user, maxCause)), nil}
	}
	if err := r.write(ctx, i, a, secret, token); err != nil {
		return err
	}
	i.Status.RenewTime, i.Status.ExpirationTime = metav1.NewTime(token.Made), metav1.NewTime(token.Expires)
	return nil
}

// serves reports whether the Secret is as it should be, and the cluster accepts its token, which is not sent elsewhere: not to a
// server that was edited.
func (r *importer) serves(
	ctx context.Context, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess, secret *corev1.Secret,
) (serves, asked bool, err error) {
	granted := i.Status.ExpirationTime.Sub(i.Status.RenewTime.Time)
	if !time.Now().Before(i.Status.RenewTime.Add(r.pace.keepFor(granted))) {
		return false, false, nil
	}
	value := string(secret.Data[v1alpha1.ImportToken])
	whole, err := isWhole(secret, i, a, value)
	if err != nil || !whole || !isSendable(value) { // a Secret is its owners' to change
		return false, false, err
	}
	user, err := checkOwn(ctx, a, Token{value: &value, Subject: jwt.ClaimsOf(value).Subject})
	if reasonOf(err) == v1alpha1.ReasonTokenRefused {
		return false, true, nil
	}
	return user == subjectOf(i), true, err
}

// subjectOf returns the user that an import is for.
func subjectOf(i *v1alpha1.ServiceAccountImport) string {
	return "system:serviceaccount:" + i.Spec.Namespace + ":" + i.Spec.Name
}

// errMinterImported is why a minter's account is imported nowhere, whatever an access allows.
var errMinterImported = &Error{
	v1alpha1.ReasonNotAllowed,
	"the account is the minter's, whose token would make tokens of the controllers' account, and of itself, for ever: import another one", nil,
}

// importing returns what asks the cluster for a token of the account of an import, in the way of the access. The hub has been asked by then for
// what that takes.
func (h *Hub) importing(
	ctx context.Context, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess,
) (ask func(ctx context.Context) (Token, error), err error) {
	cfg, err := Config(a.Spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if a.Spec.Minter != nil {
		m, err := h.minterOf(ctx, a)
		if err == nil && jwt.ClaimsOf(m.token).Subject == subjectOf(i) {
			err = errMinterImported
		}
		return func(ctx context.Context) (Token, error) {
			return m.request(ctx, cfg, i.Spec.Namespace, i.Spec.Name, i.Spec.ExpirationSeconds)
		}, err
	}
	own, err := h.federated(ctx, a)
	return func(ctx context.Context) (Token, error) {
		token, err := minter{token: own.Value()}.request(ctx, cfg, i.Spec.Namespace, i.Spec.Name, i.Spec.ExpirationSeconds)
		if reasonOf(err) == v1alpha1.ReasonMinterExpired {
			return Token{}, refused(ctx, a, cfg, own)
		}
		return token, err
	}, err
}

// takeBack deletes the Secret of an import that is not allowed. While it cannot, the condition says so, and it tries again.
func (r *importer) takeBack(ctx context.Context, i *v1alpha1.ServiceAccountImport, why error) (time.Duration, error) {
	for _, of := range append([]corev1.LocalObjectReference{{Name: secretName(i)}}, i.Status.Secrets...) {
		err := r.remove(ctx, i, of.Name)
		if own, ok := errors.AsType[*Error](err); ok {
			return importNotReady(i, own), nil
		}
		if err != nil {
			return 0, err
		}
	}
	i.Status.Secrets, i.Status.ExpirationTime, i.Status.RenewTime = nil, metav1.Time{}, metav1.Time{}
	importNotReady(i, why)
	return 0, nil
}

// remove deletes a Secret if it is of this import.
func (r *importer) remove(ctx context.Context, i *v1alpha1.ServiceAccountImport, name string) error {
	secret, err := r.secretOf(ctx, i, name)
	if err != nil || secret == nil || !metav1.IsControlledBy(secret, i) {
		return err
	}
	err = r.hub.core.Secrets(i.Namespace).Delete(quiet(ctx), name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(secret.UID))})
	if notfound.Ignore(err, name) != nil {
		return fromHub("deleted", i.Namespace, name, err)
	}
	return nil
}

// secretOf reads a Secret beside an import, nil if there is none.
func (r *importer) secretOf(ctx context.Context, i *v1alpha1.ServiceAccountImport, name string) (*corev1.Secret, error) {
	secret, err := r.hub.core.Secrets(i.Namespace).Get(quiet(ctx), name, metav1.GetOptions{})
	if notfound.Is(err, name) {
		return nil, nil //nolint:nilnil // as the name says
	}
	if err != nil {
		return nil, fromHub("read", i.Namespace, name, err)
	}
	return secret, nil
}

// fromHub returns what a request for a Secret of an import ran into. What was written meanwhile is not told: it is tried again.
func fromHub(did, namespace, name string, err error) error {
	reason := v1alpha1.ReasonHub
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return err
	case apierrors.IsForbidden(err):
		reason = v1alpha1.ReasonNotAllowed
	}
	return &Error{reason, fmt.Sprintf("the Secret %s/%s cannot be %s", namespace, name, did), err}
}
