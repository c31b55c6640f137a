package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

type rbac struct {
	*shared

	member *side
	rights rightsFlags
	dryRun dryRun
}

func newRBAC(s *shared) *cobra.Command {
	r := &rbac{shared: s, member: newSide(memberSide)}
	c := &cobra.Command{
		Use:   "rbac NAME --member-context CONTEXT --rules FILE",
		Short: "Give the controllers their rights in a member",
		Long: `Applies the roles of FILE in a member, bound to the account of the controllers: what mcctl join does of it, for a member that has joined
and whose controllers need other rights now. Those that FILE has no more are not removed. What others have made is not written: if a role or binding
of theirs is not as FILE says, nothing is.

The account is the one that the member has joined with, unless FILE or --service-account says another. One of these must, where the member has no
ClusterAccess, and with --dry-run=client, which asks nobody. What that prints is for an account of the member: take --dry-run=server for a federated one.

The rights of the manager in the hub are not given by mcctl: they are the same whatever the members, so they are applied with its Deployment.

The member must be the one that has joined. Where nobody has noted which one that is, the ClusterAccess must lead to the server of your context, by
the same CA.

What you may not grant is listed before anything is written.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0]) },
	}
	flags := c.Flags()
	r.member.addFlags(flags)
	r.rights.addFlags(flags)
	flags.Lookup("service-account").Usage = "The account of the controllers in the member, as NAMESPACE/NAME. Default: the one in the files, or else that which has joined"
	r.dryRun.addFlags(flags)
	return c
}

func (r *rbac) run(ctx context.Context, name string) error {
	if err := r.dryRun.validate(); err != nil {
		return err
	}
	if err := r.rights.validate(); err != nil {
		return err
	}
	if r.dryRun.client() {
		objects, err := r.of(joined{})
		if err != nil {
			return err
		}
		namespace, err := r.hub.namespace()
		if err != nil {
			return err
		}
		return r.dryRun.print(r.streams.Out, markedAs(namespace, name), objects, nil)
	}
	hub, err := r.hub.connect(ctx)
	if err != nil {
		return err
	}
	member, err := r.member.connectMember(ctx)
	if err != nil {
		return err
	}
	identity, err := distinct(ctx, hub, member)
	if err != nil {
		return err
	}
	joined, err := r.joined(ctx, hub, member, name, identity)
	if err != nil {
		return err
	}
	mark, err := hub.mark(ctx, name)
	if err != nil {
		return err
	}
	objects, err := r.of(joined)
	if err != nil {
		return err
	}
	if err := member.mayApply(ctx, objects, mark); err != nil {
		return err
	}
	if err := member.unclaimed(ctx, objects, mark); err != nil {
		return err
	}
	if err := member.mayGrant(ctx, objects, mark); err != nil {
		return err
	}
	if err := member.takes(ctx, objects, mark); err != nil {
		return err
	}
	a := newApplier(mark, r.dryRun.server(), newProgress(r.streams.ErrOut))
	return a.applyWhole(ctx, member, objects)
}

// joined returns what has joined under a name, which is the member for sure: whoever has rights there has them by the account of the fleet.
func (r *rbac) joined(ctx context.Context, hub, member *reached, name, identity string) (joined, error) {
	k, err := hub.find(ctx, name)
	if err != nil {
		return joined{}, err
	}
	has := joined{name: name, namespace: hub.namespace}
	if k.access == nil { // or the caller may not read it, where it is in a namespace of others
		has.identity = k.member.Status.Identity
	} else if has, err = hub.joined(ctx, name); err != nil {
		return has, err
	}
	if err := has.isCluster(member, identity); err != nil || has.identity != "" {
		return has, err
	}
	if k.access == nil {
		return has, fmt.Errorf("nobody has noted which cluster the member %s is, so it may be another one than %s: %w. A manager notes it in the "+
			"Member that may get the namespace kube-system there: give its account that right by kubectl first", name, member.config.Host, errOtherCluster)
	}
	return has, has.leadsHere(member, identity, "rbac", "Name the context of the member")
}

// of returns what gives the rights to those as which the controllers come to a member.
func (r *rbac) of(member joined) ([]client.Object, error) {
	var fallback types.NamespacedName
	switch access := member.access; {
	case access == nil: // nobody has noted by which account they come
	case access.Spec.Minter != nil:
		fallback = workerOf(access.Spec.Minter)
	default:
		fallback = defaultAccount() // in its place comes the hub's
	}
	given, err := r.rights.read(r.streams.In, fallback)
	if err != nil {
		return nil, err
	}
	if err := given.GiveNothing(); err != nil {
		return nil, err
	}
	if access := member.access; access != nil && access.Spec.Federated != nil {
		return given.For(membership.FederatedSubject(access.Namespace, access.Spec.Federated.ServiceAccountName)), nil
	}
	return given.Objects, nil
}
