package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

type leave struct {
	*shared

	member     *side
	dependents string
	timeout    time.Duration
	force      bool
}

// What becomes of what controllers have put into a member.
const (
	keepDependents  = "keep"
	pruneDependents = "prune"
)

func newLeave(s *shared) *cobra.Command {
	l := &leave{shared: s, member: newSide(memberSide)}
	c := &cobra.Command{
		Use:   "leave NAME --member-context CONTEXT",
		Short: "Undo what join has made",
		Long: `Undoes what mcctl join has made: first in the hub, so that the controllers let go of the member while they still may work there, and
then in the member, its rights last. What others have made stays, and what of it lets the controllers work there is named: so it is with what
was applied from what mcctl join --dry-run=client prints. ServiceAccountImports of the member stay too, and are named.

In the member, the configurations of webhooks go first that programs of this hub keep there for it, whatever --dependents says: such a program
is known by its Secret NAME-webhooks in the hub. Those of other programs stay, and are named.

A cluster that is not the one that has joined under the name is refused, and nothing is changed. Where nobody has noted which one that is, what is
there must say that it is of the member, or the ClusterAccess must lead to the server of your context, by the same CA.

NAME is that of the ClusterAccess in the namespace of --namespace, or NAMESPACE/NAME. Its Member, if that is called NAMESPACE/NAME, is looked for
in all namespaces. If you may not list these, it is looked for in those of --namespace and of the ClusterAccess alone: name that of the Members with
--namespace then, so that one that is paused is seen.

With --dependents=prune the controllers take back what they have put into the member, and the command waits for that. What becomes of
dependents then is for the controllers to say: see "Leaving" in docs/ownership.md. With keep all of it stays. Without the flag, that is as the
ClusterAccess says: its finalizer ` + objects.LeaveFinalizer + ` means prune. Where the ClusterAccess is paused, or its Member paused or drained, nothing
can be taken back, so prune is refused, and nothing is changed.

After fleet.Options.LeaveTimeout, 5 minutes unless the manager has another one, the fleet lets go of the member whatever is undone, and the hub
does not tell that: the manager logs it, as the problem LeftUndone. So --timeout is below that. After it the exit code is 1, and the rights in
the member stay. A later mcctl leave --dependents=prune waits on, but is sure of nothing once the ClusterAccess went later than --timeout after
it was deleted, or is gone already: then the exit code is 1 and the rights stay too, and so does the minter's Secret. Look in the member for
what is left. With --dependents=keep the rights go.

What the caller may not delete in the hub or in the member is listed before anything is undone. A caller that may not read in the member what
join has made there changes nothing.

If the member cannot be reached, or gives no answer within --member-request-timeout, a minute, the hub is cleaned, what stays in the member is
named, and the exit code is 1. With --force the commands are printed that remove it by hand, also for a Secret of the hub that the caller may not
delete, and nobody is asked before for the rights. A ClusterAccess that the caller may not delete ends it all the same.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return l.run(c.Context(), args[0]) },
	}
	flags := c.Flags()
	l.member.addFlags(flags)
	flags.StringVar(&l.dependents, "dependents", "", `"keep" or "prune": what becomes of what controllers have put into the member`)
	flags.DurationVar(&l.timeout, "timeout", 4*time.Minute,
		"How long to wait until the controllers have let go of the member: less than the fleet does, which does not tell that it gives up")
	flags.BoolVar(&l.force, "force", false, "Go on without the member, and print the commands that are left to a person")
	return c
}

func (l *leave) run(ctx context.Context, name string) error {
	if l.dependents != "" && l.dependents != keepDependents && l.dependents != pruneDependents {
		return usageError(`--dependents is "keep" or "prune", not %q`, l.dependents)
	}
	hub, err := l.hub.connect(ctx)
	if err != nil {
		return err
	}
	member, err := l.member.connectMember(ctx)
	if err != nil {
		if !l.force {
			return fmt.Errorf("%w; or go on without the member with --force", err)
		}
		member = nil
	}
	return l.undo(ctx, hub, member, name)
}

// undo makes sure that the member is the one that has joined, before anything is changed. That it does not answer is told once the hub
// is clean.
func (l *leave) undo(ctx context.Context, hub, member *reached, name string) error {
	mark, err := hub.mark(ctx, name)
	if err != nil {
		return err
	}
	had, err := hub.leaving(ctx, name, mark)
	if err != nil {
		return err
	}
	if err := l.canPrune(hub, had); err != nil {
		return err
	}
	var has presence
	var unreached error
	if member != nil {
		has, unreached = l.look(ctx, hub, member, mark, had)
		if err := l.mustSee(ctx, member, unreached); err != nil {
			return err
		}
	}
	nothing := member != nil && unreached == nil && has.none() && had.none()
	if !nothing && l.cameTooLate(had) {
		return l.unsure(hub, had, "the hub has no ClusterAccess any more that waits for that")
	}
	if !l.force {
		if err := had.permitted(ctx, hub, member, has); err != nil {
			return err
		}
	}
	progress := newProgress(l.streams.ErrOut)
	if err := l.leaveHub(ctx, hub, had, progress); err != nil {
		return err
	}
	if member == nil {
		l.manual(mark, had)
		return nil
	}
	if nothing {
		return nothingToUndo(ctx, hub, member, has, mark, progress)
	}
	return l.leaveMember(ctx, hub, member, has, unreached, mark, had, progress)
}

// nothingToUndo is the error of a leave that finds nothing that goes. The webhooks that stay are named, if they are for the member, and what it
// takes to remove what was made there for another hub.
func nothingToUndo(ctx context.Context, hub, member *reached, has presence, mark mark, progress progress) error {
	name := has.of.name
	for _, one := range has.kept {
		if slices.Contains(hub.names(name), programOf(one).Member) {
			progress.keep(member, one, one.why)
		}
	}
	ofOthers, err := member.made(ctx, mark.ofAnyHub(), membership.MemberKinds())
	if err != nil {
		return err
	}
	return fmt.Errorf("there is nothing to undo: neither the hub (%s, namespace %q) nor the member (%s) has anything that mcctl join has made for %q%s%s",
		hub.config.Host, markedAs(hub.namespace, name).Namespace, member.config.Host, name, has.of.hint(), mark.ofOtherHubs(ofOthers))
}

// leaving is what goes from the hub, and what stays there since others have made it.
type leaving struct {
	joined

	secrets, others []client.Object
	// imports are of accounts of the member.
	imports []keptObject
	// unasked says that the caller may not list Secrets, of which a federated member needs none.
	unasked bool
}

func (l leaving) none() bool { return l.access == nil && len(l.secrets) == 0 }

// leaving reads what the hub has of a member. The minter's Secret says which cluster has joined too, for a leave that was interrupted.
func (r *reached) leaving(ctx context.Context, name string, mark mark) (leaving, error) {
	var l leaving
	var err error
	if l.joined, err = r.joined(ctx, name); err != nil {
		return l, err
	}
	if key, mayBe := r.accessOf(name); mayBe {
		l.secrets, err = r.made(ctx, mark, membership.HubKinds(), client.InNamespace(key.Namespace))
		l.unasked = apierrors.IsForbidden(err) && (l.access == nil || l.access.Spec.Federated != nil)
		if err != nil && !l.unasked {
			return l, err
		}
	}
	for _, secret := range l.secrets {
		if l.identity == "" {
			l.identity = secret.GetAnnotations()[membership.IdentityAnnotation]
		}
	}
	if l.others, err = l.joined.others(ctx, r, mark); err != nil {
		return l, err
	}
	l.imports, err = r.imports(ctx, name)
	return l, err
}

// canPrune makes sure that the controllers can take back what they have put into the member, if they are to.
func (l *leave) canPrune(hub *reached, had leaving) error {
	if had.access == nil || !l.prunes(had) {
		return nil
	}
	how, cure := had.heldBack()
	if cure == "" {
		return nil
	}
	return fmt.Errorf("in the hub (%s) %s, so the controllers cannot take back what they have put into the member %s: nothing was changed. "+
		"Do this first: %s. Or leave it there with --dependents=keep", hub.config.Host, how, had.name, cure)
}

// permitted makes sure that the caller may delete all that goes, so that nothing is half undone.
func (l leaving) permitted(ctx context.Context, hub, member *reached, has presence) error {
	goes := slices.Clone(l.secrets)
	if l.access != nil {
		goes = append(goes, l.access)
	}
	err := hub.mayDelete(ctx, goes)
	if err != nil && l.access != nil && hub.mayDelete(ctx, []client.Object{l.access}) != nil {
		return err // no force goes past that: the controllers would not let go of the member
	}
	if err == nil {
		err = member.mayRemove(ctx, has.made)
	}
	if err != nil {
		return fmt.Errorf("%w\nWith --force mcctl leave %s%s goes as far as you may, and prints the commands for the rest", err, l.name, inNamespace(l.namespace))
	}
	return nil
}

// imports returns the imports of accounts of a member, as far as the caller may list them.
func (r *reached) imports(ctx context.Context, name string) (all []keptObject, err error) {
	list := &accessv1alpha1.ServiceAccountImportList{}
	err = r.List(ctx, list)
	if apierrors.IsForbidden(err) {
		err = r.List(ctx, list, client.InNamespace(r.namespace))
	}
	if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the ServiceAccountImports in the %s (%s): %w", r.name, r.config.Host, err)
	}
	for i := range list.Items {
		one := &list.Items[i]
		if slices.Contains(r.names(name), one.Spec.ClusterName) {
			one.SetGroupVersionKind(accessv1alpha1.GroupVersion().WithKind(accessv1alpha1.KindServiceAccountImport))
			all = append(all, keptObject{one, "others have made it; it gets no token any more"})
		}
	}
	return all, nil
}

// look reads what is in the member. One in which nothing is of it is taken for another cluster, unless the hub knows that it is the one.
func (l *leave) look(ctx context.Context, hub, member *reached, mark mark, had leaving) (presence, error) {
	identity, err := distinct(ctx, hub, member)
	if err != nil {
		return presence{}, err
	}
	if err := had.isCluster(member, identity); err != nil {
		return presence{}, err
	}
	of := had.joined
	if of.namesakes, of.unlisted, err = hub.namesakes(ctx, of, identity); err != nil {
		return presence{}, hubError{err}
	}
	has, err := member.presence(ctx, hub, mark, of)
	if err != nil || l.force {
		return has, err
	}
	return has, had.isOf(member, identity, mark, has)
}

// isOf makes sure that a cluster is the member by what is there, where it is not known which one has joined.
func (l leaving) isOf(member *reached, identity string, mark mark, has presence) error {
	if has.none() && !l.none() && l.identity == "" {
		return fmt.Errorf("the cluster at %s has nothing that makes it the member %s, so it may be another one: %w. Name the context of the member. "+
			"If this is it, run mcctl leave %s --force%s", member.config.Host, l.name, errOtherCluster, l.name, inNamespace(l.namespace))
	}
	if has.named(mark) {
		return nil
	}
	return l.leadsHere(member, identity, "leave", fmt.Sprintf("Name the context of the member. If that one is no more, run mcctl leave %s --force%s, "+
		"without a context of the member", l.name, inNamespace(l.namespace)))
}

// leaveHub removes what is in the hub.
func (l *leave) leaveHub(ctx context.Context, hub *reached, had leaving, progress progress) error {
	if had.access != nil {
		err := progress.step(hub.name+": "+describe(had.access), func() (string, error) { return "gone", l.release(ctx, hub, had) })
		if err != nil {
			return err
		}
	}
	progress.kept(hub, had.others)
	if had.unasked {
		tellf(progress.to, "%s: Secrets: not looked for, since you may not list them; a federated member needs none\n", hub.name)
	}
	for _, one := range had.imports {
		progress.keep(hub, one, one.why)
	}
	return l.removeSecrets(ctx, hub, had.secrets, progress)
}

// release deletes the ClusterAccess, and waits until the fleet has let go of the member. It is an error if that may have given up.
func (l *leave) release(ctx context.Context, hub *reached, had leaving) error {
	access, prunes := had.access, l.prunes(had)
	before := access.DeepCopy()
	if err := l.choose(ctx, hub, access); err != nil {
		return err
	}
	precondition := client.Preconditions{UID: &before.UID}
	if err := hub.Delete(ctx, access, precondition); notfound.Ignore(err, before.Name) != nil {
		return hub.failed("delete", before, err)
	}
	seen, unread := false, error(nil)
	err := wait.PollUntilContextTimeout(ctx, pollEvery, l.timeout, true, func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, client.ObjectKeyFromObject(before), access)
		seen, unread = seen || err == nil, err // the hub may be slow, or away for a moment
		return notfound.Is(err, before.Name) || err == nil && access.UID != before.UID, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && !seen {
		return fmt.Errorf("whether the controllers have let go of the member is not known after %s: %w", l.timeout, hub.failed("read", before, unread))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return l.unreleased(had, prunes)
	}
	if err == nil && prunes && deletedBefore(before, l.timeout) {
		return l.unsure(hub, had, fmt.Sprintf("%s is gone, and that later than --timeout=%s after it was deleted", describe(before), l.timeout))
	}
	return err
}

// choose writes --dependents into a ClusterAccess, if that does not say so already. Others may write its status meanwhile.
func (l *leave) choose(ctx context.Context, hub *reached, access *accessv1alpha1.ClusterAccess) error {
	uid := access.UID
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		before, changes := access.DeepCopy(), false
		switch l.dependents {
		case pruneDependents:
			changes = controllerutil.AddFinalizer(access, objects.LeaveFinalizer)
		case keepDependents:
			changes = controllerutil.RemoveFinalizer(access, objects.LeaveFinalizer)
		}
		if !changes || access.UID != uid {
			return nil
		}
		conflict := hub.Patch(ctx, access, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldManager)
		if apierrors.IsConflict(conflict) {
			if err := hub.Get(ctx, client.ObjectKeyFromObject(before), access); err != nil {
				return notfound.Ignore(err, before.Name)
			}
		}
		if conflict != nil {
			return hub.failed("change", before, conflict)
		}
		return nil
	})
}

// leaveMember removes what is in the member: the webhooks first and the rights last, and then the webhooks that were written meanwhile.
func (l *leave) leaveMember(
	ctx context.Context, hub, member *reached, has presence, err error, mark mark, had leaving, progress progress,
) error {
	if err == nil {
		progress.kept(member, has.others)
		if cure := mark.ofOtherHubs(has.others); cure != "" {
			tellf(progress.to, "%s\n", strings.TrimSpace(cure))
		}
		for _, one := range has.kept {
			progress.keep(member, one, one.why)
		}
		err = member.remove(ctx, has.made, progress)
	}
	if err == nil && has.webhooks {
		var again []client.Object
		if again, _, err = member.webhooks(ctx, hub, has.of); err == nil {
			err = member.remove(ctx, again, progress)
		}
	}
	if err != nil && l.force {
		tellf(l.streams.ErrOut, "%s: %s\n", string(l.name), l.name.in(err.Error()))
		l.manual(mark, had)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	if _, ofHub := errors.AsType[hubError](err); ofHub {
		return fmt.Errorf("the hub is clean, and all that mcctl join has made in the member is deleted. Programs may have written webhooks there "+
			"meanwhile, and the hub does not tell which are of the member %s. Run this in the member, and delete what it shows of programs of this hub "+
			"for that one: %s: %w", had.name, membership.ManualLook, err)
	}
	if err != nil {
		again := "mcctl leave again"
		if l.dependents == pruneDependents { // which the next one could not be sure of
			again = fmt.Sprintf("mcctl leave %s --dependents=keep%s", had.name, inNamespace(had.namespace))
		}
		return fmt.Errorf("the hub is clean, but what mcctl join has made in the member stays; run %s when it can be reached, "+
			"or with --force for the commands to do it by hand: %w", again, err)
	}
	return nil
}

// manual prints what a person is to run in the member. What others have applied of what join prints does not say for which hub it is.
func (l *leave) manual(mark mark, had leaving) {
	commands := func(selector string) string { return strings.Join(membership.ManualCommands(selector), "\n") }
	tellf(l.streams.Out, "# In the member, when it can be reached. First delete what this shows of programs of this hub for the member %s:\n%s\n",
		had.name, membership.ManualLook)
	tellf(l.streams.Out, "# Then what mcctl join has made:\n%s\n", commands(mark.selector().String()))
	if had.access == nil || had.access.Annotations[sideAnnotation] != "" {
		tellf(l.streams.Out, "# What was applied from what mcctl join --dry-run=client prints, once the tool that has applied it lets go of it. "+
			"A member %s of another hub has the same label:\n%s\n", had.name, commands(mark.printed()))
	}
}
