package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// join is what the command line says.
type join struct {
	*shared

	member    *side
	rights    rightsFlags
	target    targetFlags
	federated string
	minted    bool
	wait      time.Duration
	dryRun    dryRun
}

func newJoin(s *shared) *cobra.Command {
	j := &join{shared: s, member: newSide(memberSide)}
	c := &cobra.Command{
		Use:   "join NAME --member-context CONTEXT --rules FILE",
		Short: "Make a cluster a member of the fleet",
		Long: `Makes a cluster a member: there an account with the rights that the controllers need, and in the hub a ClusterAccess that says how the
cluster is reached. Running it again changes nothing.

With --minted, the default, the member gets a second account, the minter, which may get these two accounts and create tokens for them, and nothing else.
Its token is in a Secret of the hub, and the manager renews it. With --federated the member accepts tokens of an account of the hub, and
no credential is kept anywhere; the member's API server must be configured for that first, see mcctl federate. What join has made of a
minter before goes then. So does what it has made of another account, with its minter, once --service-account or FILE says a new one.

FILE has the roles of the controllers, as mctest.ControlPlane.RecordRights writes them. Service accounts, bindings and namespaces may be beside
them. What you may not grant is listed before anything is written.

What is applied from what --dry-run=client prints is theirs that apply it: mcctl leave names it, and does not remove it in the member. The policy
about the minter that is printed does not say for which audiences it may make tokens, since the member alone knows its own.`,
		Example: `  # The cluster of the context kind-east becomes the member east
  mcctl join east --member-context kind-east --rules rbac/member.yaml

  # Only show what would be made, without the token
  mcctl join east --member-context kind-east --rules rbac/member.yaml --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return j.run(c.Context(), args[0]) },
	}
	flags := c.Flags()
	j.member.addFlags(flags)
	j.rights.addFlags(flags)
	j.target.addFlags(flags)
	flags.BoolVar(&j.minted, "minted", false, "A minter in the member makes the tokens (the default)")
	flags.StringVar(&j.federated, "federated", "", "The member accepts the tokens of this service account of the hub, in the namespace of --namespace")
	flags.DurationVar(&j.wait, "wait", 0, "How long to wait until the member is Ready")
	j.dryRun.addFlags(flags)
	return c
}

func (j *join) run(ctx context.Context, name string) error {
	if j.minted && j.federated != "" {
		return usageError("--minted and --federated exclude each other")
	}
	if err := j.dryRun.validate(); err != nil {
		return err
	}
	hub, err := j.hub.connect(ctx)
	if err != nil {
		return err
	}
	member, err := j.member.connectMember(ctx)
	if err != nil {
		return err
	}
	longest := longestName
	if j.federated != "" {
		longest = validation.DNS1123SubdomainMaxLength
	}
	target, err := j.target.read(name, longest, hub.namespace, member.config)
	if err != nil {
		return err
	}
	if j.federated == "" && readable(member.config) {
		return usageError("you reach the member at %s without TLS, so others could read the minter's token on the way; name a URL that begins with https://", member.config.Host)
	}
	rights, err := j.given()
	if err != nil {
		return err
	}
	if j.dryRun.client() {
		p := j.plan(target, rights)
		if p.minted {
			p.member = append(p.member, membership.MinterPolicy(rights.Account, nil)...)
		}
		return j.dryRun.print(j.streams.Out, markedAs(hub.namespace, name), p.member, p.hub)
	}
	if target.Identity, err = distinct(ctx, hub, member); err != nil {
		return err
	}
	if j.federated != "" {
		if err := differ(ctx, hub, member); err != nil {
			return err
		}
	}
	p := j.plan(target, rights)
	if p.mark, err = hub.mark(ctx, name); err != nil {
		return err
	}
	if err := p.permitted(ctx, hub, member); err != nil {
		return err
	}
	if p.former, err = p.formerOf(ctx, hub, member); err != nil {
		return err
	}
	return j.make(ctx, hub, member, p)
}

// given reads what the controllers may do.
func (j *join) given() (membership.Rights, error) {
	rights, err := j.rights.read(j.streams.In, defaultAccount())
	if err == nil {
		err = rights.GiveNothing()
	}
	if err == nil && j.federated == "" {
		err = membership.LeavesRoom(rights.Account)
	}
	return rights, err
}

// joinPlan is what a join makes, in the order in which it is made: first that of the member.
type joinPlan struct {
	target      membership.Target
	rights      membership.Rights
	member, hub []client.Object
	minted      bool
	mark        mark
	former      former
}

func (j *join) plan(target membership.Target, rights membership.Rights) joinPlan {
	p := joinPlan{target: target, rights: rights, member: rights.Objects}
	if j.federated != "" {
		p.member = rights.For(membership.FederatedSubject(target.Namespace, j.federated))
		p.hub = []client.Object{membership.Federated(target, j.federated)}
		return p
	}
	p.minted = true
	p.member = append(p.member, membership.MinterObjects(rights.Account)...)
	p.hub = []client.Object{membership.Minted(target, rights.Account)}
	return p
}

// make makes it all. The ClusterAccess comes last, so that the fleet hears of the member when all that it needs is there. What the member
// needs no more goes after that.
func (j *join) make(ctx context.Context, hub, member *reached, p joinPlan) error {
	a := newApplier(p.mark, j.dryRun.server(), newProgress(j.streams.ErrOut))
	if err := a.applyWhole(ctx, member, p.member); err != nil {
		return err
	}
	if p.minted {
		if err := j.giveMinter(ctx, hub, member, p, a); err != nil {
			return err
		}
	}
	if err := a.apply(ctx, hub, p.hub...); err != nil {
		return err
	}
	if err := a.removeFormer(ctx, hub, member, p.former); err != nil {
		return err
	}
	if a.dryRun || j.wait <= 0 {
		return nil
	}
	return awaitReady(ctx, hub, p.target, j.wait, j.streams.ErrOut)
}
