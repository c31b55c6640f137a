package command

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// former is what a member had as one with a minter, or with the minter of another account, and needs no more.
type former struct {
	member, hub []client.Object
	// kept is the minter's Secret, if others have made it.
	kept []client.Object
}

// formerOf returns what goes once the member has joined. It is an error if the caller may not remove all of it. Nothing is written.
func (p joinPlan) formerOf(ctx context.Context, hub, member *reached) (f former, err error) {
	var ofSecret map[string]bool
	if !p.minted {
		if f, ofSecret, err = p.formerSecret(ctx, hub); err != nil {
			return f, err
		}
	}
	if f.member, err = p.formerMinters(ctx, hub, member, ofSecret); err != nil {
		return f, err
	}
	if err := hub.mayDelete(ctx, f.hub); err != nil {
		return f, err
	}
	return f, member.mayDelete(ctx, f.member)
}

// formerMinters returns what the member has of minters that it needs no more: those for other accounts, and all of one that is federated. The
// member tells, so that a join that was interrupted is gone on with: the hub knows by then what is right now. What the Secret of one names goes too.
func (p joinPlan) formerMinters(ctx context.Context, hub, member *reached, ofSecret map[string]bool) (goes []client.Object, err error) {
	made, err := member.made(ctx, p.mark, membership.MemberKinds())
	if forbidden := err; apierrors.IsForbidden(err) {
		before, err := hub.joined(ctx, p.target.Name)
		if err == nil && (len(ofSecret) > 0 || p.replaces(before.access)) {
			err = forbidden
		}
		return nil, err // it takes no right to list to join as before, or without a minter
	}
	if err != nil {
		return nil, err
	}
	needed := names(p.member)
	if p.minted {
		maps.Copy(needed, names(minterOf(p.rights.Account)))
	}
	ofMinters := mintersAmong(made)
	return slices.DeleteFunc(made, func(obj client.Object) bool {
		name := describe(obj)
		return !ofMinters[name] && !ofSecret[name] || needed[name]
	}), nil
}

// replaces reports whether an access says of a minter that is none of the plan.
func (p joinPlan) replaces(before *accessv1alpha1.ClusterAccess) bool {
	return before != nil && before.Spec.Minter != nil && (!p.minted || workerOf(before.Spec.Minter) != p.rights.Account)
}

// mintersAmong returns the names of what minters consist of, with their accounts. The policy about a minter goes last, so it tells of one of which
// a part is gone.
func mintersAmong(made []client.Object) map[string]bool {
	has, all := names(made), map[string]bool{}
	for _, obj := range made {
		minter, isMinter := membership.BoundBy(obj)
		if !isMinter {
			minter = client.ObjectKeyFromObject(obj)
		}
		worker := types.NamespacedName{Namespace: minter.Namespace, Name: membership.WorkerOf(minter.Name)}
		if isMinter || !slices.ContainsFunc(membership.MinterObjects(worker), func(o client.Object) bool { return !has[describe(o)] }) {
			maps.Copy(all, names(minterOf(worker)))
		}
	}
	return all
}

func workerOf(m *accessv1alpha1.Minter) types.NamespacedName {
	return types.NamespacedName{Namespace: m.ServiceAccountNamespace, Name: m.ServiceAccountName}
}

// formerSecret returns the Secret of a minter, which goes once a member is federated, and the names of what it says of the member.
func (p joinPlan) formerSecret(ctx context.Context, hub *reached) (f former, ofSecret map[string]bool, err error) {
	secret := &corev1.Secret{}
	secret.SetGroupVersionKind(membership.SecretKind())
	secret.Namespace, secret.Name = p.target.Namespace, membership.MinterSecretName(p.target.Name)
	found, err := hub.have(ctx, secret)
	if forbidden := err; apierrors.IsForbidden(err) {
		before, err := hub.joined(ctx, p.target.Name)
		if err == nil && p.replaces(before.access) {
			err = forbidden
		}
		return f, nil, err // it takes no right to Secrets to join without one
	}
	switch {
	case err != nil || !found:
		return f, nil, err
	case p.mark.isOn(secret):
		f.hub = []client.Object{secret}
		ofSecret = names(minterOf(types.NamespacedName{
			Namespace: string(secret.Data[accessv1alpha1.MinterNamespace]),
			Name:      membership.WorkerOf(string(secret.Data[accessv1alpha1.MinterServiceAccount])),
		}))
	case ofMinter(secret):
		f.kept = []client.Object{secret}
	}
	return f, ofSecret, nil
}

// minterOf returns what is in a member of the minter of an account, and that account.
func minterOf(worker types.NamespacedName) []client.Object {
	account := membership.AccountOf(rbacv1.Subject{Namespace: worker.Namespace, Name: worker.Name})
	return slices.Concat([]client.Object{account}, membership.MinterObjects(worker), membership.MinterPolicy(worker, nil))
}

func names(objects []client.Object) map[string]bool {
	all := map[string]bool{}
	for _, obj := range objects {
		all[describe(obj)] = true
	}
	return all
}

// mayDelete makes sure that the caller may delete objects.
func (r *reached) mayDelete(ctx context.Context, objects []client.Object) error {
	questions := make([]question, len(objects))
	for i, obj := range objects {
		var err error
		if questions[i], err = r.questionOf("delete", obj); err != nil {
			return err
		}
		questions[i].all.Name = obj.GetName()
	}
	return r.mayDo(ctx, questions)
}

// removeFormer removes what the member needs no more.
func (a applier) removeFormer(ctx context.Context, hub, member *reached, f former) error {
	a.progress.kept(hub, f.kept)
	for _, side := range []struct {
		of      *reached
		objects []client.Object
	}{{member, f.member}, {hub, f.hub}} {
		if !a.dryRun {
			if err := side.of.remove(ctx, side.objects, a.progress); err != nil {
				return err
			}
			continue
		}
		for _, obj := range side.objects {
			if err := a.progress.step(side.of.name+": "+describe(obj), func() (string, error) { return "would be deleted", nil }); err != nil {
				return err
			}
		}
	}
	return nil
}
