package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

type describing struct {
	*shared
	asking

	live    bool
	account string
}

func newDescribe(s *shared) *cobra.Command {
	d := &describing{shared: s}
	c := &cobra.Command{
		Use:   "describe NAME",
		Short: "Tell why a member is not reconciled, and what to do",
		Long: `Tells what is known of a member, in the order in which one thing needs the one before: its manager, if that is gone, discovered,
credentials, reachable, rights, kinds, owner, paused, queue. The first that is wrong comes with one thing to do.

With --rules, the member itself is asked whether the account of the controllers has the rights in the files, as mcctl check does.

With --live, the manager that works on the member is asked too, and where replicas share the members its owner alone: what waits for it in
queues, and what runs now. That goes to the port "metrics" of the manager's Pod, as kubectl port-forward does, and takes the rights to get
Leases and Pods and to create pods/portforward in the manager's namespace. Your own credentials are not shown to the Pod. If it tells only
those that it knows, as it should, name with --live-account a service account that may get /debug/fleet, of which you may create a token.

Exit codes: 0 if the member is Ready, 3 if it is not or a right is missing, 1 if the member or the manager was to be asked and could not be.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return d.run(c.Context(), args[0]) },
	}
	d.addFlags(c.Flags())
	c.Flags().BoolVar(&d.live, "live", false, "Ask the manager that works on the member for its queues and for what runs")
	c.Flags().StringVar(&d.account, "live-account", "", "With --live, the service account of the hub whose token the manager is shown, as NAMESPACE/NAME")
	return c
}

// reader returns the service account whose token a manager is shown, without a name if there is none.
func (d *describing) reader() (client.ObjectKey, error) {
	if d.account == "" {
		return client.ObjectKey{}, nil
	}
	namespace, name, found := strings.Cut(d.account, "/")
	if !d.live || !found || len(content.IsPathSegmentName(namespace)) > 0 || len(content.IsPathSegmentName(name)) > 0 || namespace == "" || name == "" {
		return client.ObjectKey{}, usageError("--live-account is for --live, and is NAMESPACE/NAME, not %q", d.account)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

func (d *describing) run(ctx context.Context, name string) error {
	account, err := d.reader()
	if err == nil {
		err = d.validate()
	}
	if err != nil {
		return err
	}
	var want []rights.Right
	if len(d.rights.files) > 0 {
		if want, err = d.wanted(d.streams.In); err != nil {
			return err
		}
	}
	hub, err := d.hub.connect(ctx)
	if err != nil {
		return err
	}
	k, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	stale, now := k.member != nil && leases{}.stale(ctx, hub, k.member), time.Now()
	answers := noAnswers(name)
	var notAsked error
	if want != nil {
		answers.rights, notAsked = d.ask(ctx, hub, k, name, want)
	}
	if d.live {
		live, err := hub.live(ctx, k, name, account)
		if err == nil {
			answers.queue = live.findings(now)
		} else {
			notAsked = errors.Join(notAsked, fmt.Errorf("the manager of %s was not asked: %w", name, err))
			answers.queue = []finding{{about: columnQueue, says: "could not be asked for"}}
		}
	}
	findings := examine(k, stale, now, answers)
	if err := show(d.streams.Out, d.name, name, findings); err != nil {
		return err
	}
	if notAsked != nil {
		return notAsked
	}
	if is, _ := k.ready(); !is || stale || answers.rights.cure != "" {
		return &exitError{code: codeNotReady}
	}
	return nil
}

// ask asks the member which of the rights the account of the controllers has not.
func (d *describing) ask(ctx context.Context, hub *reached, k known, name string, want []rights.Right) (finding, error) {
	f := finding{about: columnRights, says: "could not be asked for"}
	config, _, err := d.config(ctx, hub, k, name)
	var lacking []rights.Right
	if err == nil {
		lacking, err = lackingOf(ctx, config, want)
	}
	if err != nil {
		return f, fmt.Errorf("the member %s was not asked for rights; say with --member-server at which URL you reach it, if the hub has another one: %w", name, err)
	}
	if len(lacking) == 0 {
		f.says = fmt.Sprintf("all %d are there", len(want))
		return f, nil
	}
	f.says = fmt.Sprintf("%d of %d are missing", len(lacking), len(want))
	for _, right := range lacking {
		f.says += "\n" + right.String()
	}
	f.cure = giveRights(k.access, "give them: mcctl rbac "+name+inNamespace(hub.namespace))
	return f, nil
}

// answers are what others than the hub have said.
type answers struct {
	rights finding
	queue  []finding
}

// noAnswers are those where nobody was asked.
func noAnswers(name string) answers {
	return answers{
		rights: finding{about: columnRights, says: "not asked; mcctl describe " + name + " --rules FILE asks the member"},
		queue:  []finding{{about: columnQueue, says: "not asked; mcctl describe " + name + " --live asks the manager that works on it"}},
	}
}

// finding is what is known of one thing that a member needs.
type finding struct {
	about, says string
	// cure says what to do. It is empty where nothing is wrong.
	cure string
}

// show prints what was found, and then the one thing to do first.
func show(to io.Writer, called callName, name string, findings []finding) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	tellf(table, "Member:\t%s\n", name)
	cure := ""
	for _, f := range findings {
		mark := ""
		if f.cure != "" {
			mark = "! "
			cure = orElse(cure, f.cure)
		}
		tellf(table, "%s:\t%s%s\n", f.about, mark, strings.ReplaceAll(called.in(f.says), "\n", "\n\t"))
	}
	if cure != "" {
		tellf(table, "Do this:\t%s\n", called.in(cure))
	}
	return table.Flush()
}

// examine says what is known of a member, in the order in which one thing needs the one before.
func examine(k known, stale bool, now time.Time, answers answers) []finding {
	m := k.member
	if m == nil {
		return []finding{discovered(k), credentials(k, "", now), stateWithoutMember(k), answers.rights}
	}
	var all []finding
	unused := whyUnused(m)
	if stale {
		unused = "the manager is gone"
		all = append(all, finding{
			about: "Manager", says: fmt.Sprintf("gone: nobody renews its Lease %s/%s, and what follows may be old", m.Status.Lease.Namespace, m.Status.Lease.Name),
			cure: "see why the manager does not run: its Deployment and the logs of its Pods",
		})
	}
	all = append(all, discovered(k), credentials(k, unused, now))
	at := len(all)
	all = append(all, state(k, now), identity(m), answers.rights, kinds(k), owner(m), controls(m))
	all = append(all, answers.queue...)
	if is, _ := k.ready(); !is && !slices.ContainsFunc(all, func(f finding) bool { return f.cure != "" }) {
		all[at].cure = cureOfState(m.Status.State)
	}
	return all
}

// stateWithoutMember says what is known where no manager has written a Member. Where the ClusterAccess is Ready, as far as is known nothing is
// wrong: whether there are Members is for the fleet to choose.
func stateWithoutMember(k known) finding {
	const more = "let the manager write Members: its program calls members.Setup, in the example operator with the flag --accesses; or ask it at /debug/fleet"
	f := finding{about: columnState, says: "no manager has written a Member of it in this namespace; " + elsewhere(k.access)}
	if is, _ := k.ready(); is {
		f.says += "; to see more, " + more
	} else {
		f.cure = more
	}
	return f
}

// elsewhere says where the Member of a ClusterAccess may be, if it is not where it was looked for.
func elsewhere(a *accessv1alpha1.ClusterAccess) string {
	return fmt.Sprintf("one that takes the ClusterAccesses of all namespaces calls it %s/%s, and has all its Members in one namespace", a.Namespace, a.Name)
}

func discovered(k known) finding {
	f := finding{about: "Discovered", says: "by another provider than that of ClusterAccesses"}
	if k.access != nil {
		f.says = fmt.Sprintf("by the ClusterAccess %s/%s, at %s", k.access.Namespace, k.access.Name, k.access.Spec.Server)
		if k.access.Spec.Paused {
			f.says += ", which is paused"
			f.cure = unpause
		}
	}
	if k.member != nil {
		c := meta.FindStatusCondition(k.member.Status.Conditions, membersv1alpha1.ConditionAccepted)
		if c != nil && c.Status == metav1.ConditionFalse {
			f.says, f.cure = c.Message, "delete the Member, or let the provider of the fleet discover the cluster"
		}
	}
	return f
}

// whyUnused says why no manager sends the credentials of a member anywhere, if none does. Those of a ClusterAccess are renewed when they are used.
// A member that is to leave uses its own until controllers are done with it.
func whyUnused(m *membersv1alpha1.Member) string {
	switch {
	case m.Status.State == string(fleet.Drained), m.Spec.Drained && !m.Spec.Leave:
		return "it is drained"
	case m.Status.State == string(fleet.NotOwned):
		return "no replica works on it"
	default:
		return ""
	}
}

// credentials says how long those of a member are good. That they have ended tells nothing where they are unused.
func credentials(k known, unused string, now time.Time) finding {
	f := finding{about: "Credentials", says: "their end is not known"}
	if k.member != nil && !k.member.Status.Expires.IsZero() {
		f = until(f, k.member.Status.Expires.Time, now, k.access)
		if f.cure != "" && unused != "" {
			f.says, f.cure = f.says+"; nothing renews them while "+unused, ""
		}
	}
	if k.access == nil {
		return f
	}
	for _, kind := range []string{accessv1alpha1.ConditionAuthorized, accessv1alpha1.ConditionReady} {
		if c := meta.FindStatusCondition(k.access.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return finding{about: f.about, says: c.Reason + ": " + c.Message, cure: cureOf(c.Reason, k.access)}
		}
	}
	if k.member == nil && k.access.Spec.Minter != nil && !k.access.Status.ExpirationTime.IsZero() {
		f = until(f, k.access.Status.ExpirationTime.Time, now, k.access)
		f.says = "the minter's are " + f.says
	}
	if c := meta.FindStatusCondition(k.access.Status.Conditions, accessv1alpha1.ConditionReady); c != nil && c.Reason == accessv1alpha1.ReasonNotRenewed {
		f.says += "\n" + c.Reason + ": " + c.Message
		f.cure = orElse(f.cure, cureOf(c.Reason, k.access))
	}
	return f
}

func until(f finding, end, now time.Time, a *accessv1alpha1.ClusterAccess) finding {
	f.says = "good until " + end.UTC().Format(time.RFC3339)
	if end.After(now) {
		return f
	}
	f.says, f.cure = "expired at "+end.UTC().Format(time.RFC3339), "renew them where they come from"
	switch {
	case a != nil && a.Spec.Federated != nil:
		f.cure = "see why the hub gives the manager no other token: the log of the manager says it"
	case a != nil:
		f.cure = cureOf(accessv1alpha1.ReasonMinterExpired, a)
	}
	return f
}

func state(k known, now time.Time) finding {
	m := k.member
	f := finding{about: columnState, says: orElse(m.Status.State, "not known: no manager has said anything of it yet")}
	if !m.Status.Since.IsZero() {
		f.says += " for " + now.Sub(m.Status.Since.Time).Truncate(time.Second).String()
	}
	if m.Status.Server != "" {
		f.says += ", at " + m.Status.Server
	}
	if m.Status.Version != "" {
		f.says += ", " + m.Status.Version
	}
	switch m.Status.Reason {
	case "", fleet.ReasonPaused, fleet.ReasonDrained: // these have a line of their own
	default:
		f.says += "\n" + m.Status.Reason + ": " + m.Status.Message
		f.cure = cureOf(m.Status.Reason, k.access)
	}
	return f
}

func identity(m *membersv1alpha1.Member) finding {
	f := finding{about: "Identity", says: orElse(m.Status.Identity, "not known; the right to get the namespace kube-system is missing, or it was never reached")}
	if len(m.Status.Duplicates) > 0 {
		f.says += ", as have " + strings.Join(m.Status.Duplicates, ", ")
		f.cure = "let all but one of them leave: they are the same cluster, and its objects are reconciled for each"
	}
	return f
}

func kinds(k known) finding {
	m := k.member
	f := finding{about: "Kinds", says: "all are synced that controllers want"}
	if len(m.Status.NotSynced) == 0 && m.Status.State != string(fleet.Ready) {
		f.says = "not known while it is not Ready"
	}
	if len(m.Status.NotSynced) == 0 {
		return f
	}
	lines := make([]string, len(m.Status.NotSynced))
	for i, n := range m.Status.NotSynced {
		lines[i] = fmt.Sprintf("%s is not synced: %s: %s", n.Kind, n.Reason, n.Message)
		cure := cureOf(n.Reason, k.access)
		if n.Reason == fleet.ReasonNoKind {
			cure = "install the CRD of " + n.Kind + " in the member, or do without it there"
		}
		f.cure = orElse(f.cure, cure)
	}
	f.says = strings.Join(lines, "\n")
	return f
}

func owner(m *membersv1alpha1.Member) finding {
	f := finding{about: columnReplica, says: orElse(m.Status.Replica, "one works on all members")}
	if m.Status.State == "NotOwned" && m.Status.Replica == "" {
		f.says, f.cure = "none works on it", "see mcctl shards: whether replicas run, and one of the pool that the member asks for"
	}
	return f
}

func controls(m *membersv1alpha1.Member) finding {
	f := finding{about: "Paused", says: "no"}
	why, called := "", m.Spec.ClusterName+inNamespace(m.Namespace)
	if m.Spec.Reason != "" {
		why = ": " + m.Spec.Reason
	}
	switch {
	case m.Spec.Drained:
		f.says, f.cure = "drained"+why, "mcctl undrain "+called
	case m.Spec.Leave:
		f.says = "no, but it is to leave, and to be drained then" + why
		f.cure = "mcctl undrain " + called + ", if it is to stay"
	case m.Spec.Paused:
		f.says, f.cure = "yes"+why, "mcctl resume "+called
	case m.Status.Leaving:
		f.says = "no, but it is leaving"
	}
	return f
}
