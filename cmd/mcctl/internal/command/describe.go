package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

type describing struct {
	*shared

	live    bool
	account string
}

func newDescribe(s *shared) *cobra.Command {
	d := &describing{shared: s}
	c := &cobra.Command{
		Use:   "describe NAME",
		Short: "Tell why a member is not reconciled, and what to do",
		Long: `Tells what is known of a member, in the order in which one thing needs the one before: discovered, credentials, reachable, rights and
kinds, owner, paused. The first that is wrong comes with one thing to do. mcctl check asks the member itself.

With --live, the manager that works on the member is asked too: what waits for it in queues, and what runs now. That goes to the port
"metrics" of the manager's Pod, as kubectl port-forward does, and takes the rights to get Leases and Pods and to create pods/portforward
in the manager's namespace. Your own credentials are not shown to the Pod. If it tells only those that it knows, as it should, name
with --live-account a service account that may get /debug/fleet, of which you may create a token.

Exit codes: 0 if the member is Ready, 3 if it is not, 1 if the manager was to be asked and could not be.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return d.run(c.Context(), args[0]) },
	}
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
	if err != nil {
		return err
	}
	hub, err := d.hub.connect()
	if err != nil {
		return err
	}
	k, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	stale := k.member != nil && leases{}.stale(ctx, hub, k.member)
	now := time.Now()
	findings := examine(k, stale, now)
	var notLive error
	if d.live {
		live, err := hub.live(ctx, k, name, account)
		if err == nil {
			findings = append(findings, live.findings(now)...)
		}
		notLive = err
	}
	if err := show(d.streams.Out, name, findings); err != nil {
		return err
	}
	if notLive != nil {
		return fmt.Errorf("the manager of %s was not asked: %w", name, notLive)
	}
	if is, _ := k.ready(); !is || stale {
		return &exitError{code: codeNotReady}
	}
	return nil
}

// finding is what is known of one thing that a member needs.
type finding struct {
	about, says string
	// cure says what to do. It is empty where nothing is wrong.
	cure string
}

// show prints what was found, and then the one thing to do first.
func show(to io.Writer, name string, findings []finding) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	tellf(table, "Member:\t%s\n", name)
	cure := ""
	for _, f := range findings {
		mark := ""
		if f.cure != "" {
			mark = "! "
			cure = orElse(cure, f.cure)
		}
		tellf(table, "%s:\t%s%s\n", f.about, mark, strings.ReplaceAll(f.says, "\n", "\n\t"))
	}
	if cure != "" {
		tellf(table, "Do this:\t%s\n", cure)
	}
	return table.Flush()
}

// examine says what is known of a member, in the order in which one thing needs the one before.
func examine(k known, stale bool, now time.Time) []finding {
	all := []finding{discovered(k), credentials(k, now)}
	if k.member == nil {
		return append(all, finding{about: columnState, says: "not known", cure: "let the manager write Members: its program calls members.Setup, in the example operator with the flag --accesses; or ask it at /debug/fleet"})
	}
	m := k.member
	if stale {
		all = append(all, finding{
			about: "Manager", says: fmt.Sprintf("gone: nobody renews its Lease %s/%s, and what follows may be old", m.Status.Lease.Namespace, m.Status.Lease.Name),
			cure: "see why the manager does not run: its Deployment and the logs of its Pods",
		})
	}
	return append(all, state(m, now), identity(m), kinds(m), owner(m), controls(m))
}

func discovered(k known) finding {
	f := finding{about: "Discovered", says: "by another provider than that of ClusterAccesses"}
	if k.access != nil {
		f.says = fmt.Sprintf("by the ClusterAccess %s/%s, at %s", k.access.Namespace, k.access.Name, k.access.Spec.Server)
		if k.access.Spec.Paused {
			f.says += ", which is paused"
			f.cure = "set spec.paused of the ClusterAccess to false"
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

func credentials(k known, now time.Time) finding {
	f := finding{about: "Credentials", says: "their end is not known"}
	if k.member != nil && !k.member.Status.Expires.IsZero() {
		f = until(f, k.member.Status.Expires.Time, now)
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
		f = until(f, k.access.Status.ExpirationTime.Time, now)
		f.says = "the minter's are " + f.says
	}
	return f
}

func until(f finding, end, now time.Time) finding {
	f.says = "good until " + end.UTC().Format(time.RFC3339)
	if !end.After(now) {
		f.says, f.cure = "expired at "+end.UTC().Format(time.RFC3339), "renew them where they come from; for a ClusterAccess run mcctl join again"
	}
	return f
}

// cureOf says what to do about what is wrong with a ClusterAccess.
func cureOf(reason string, a *accessv1alpha1.ClusterAccess) string {
	switch reason {
	case accessv1alpha1.ReasonPaused:
		return "set spec.paused of the ClusterAccess to false"
	case accessv1alpha1.ReasonServiceAccountNotFound, accessv1alpha1.ReasonNotAllowed, accessv1alpha1.ReasonSecretNotFound,
		accessv1alpha1.ReasonSecretInvalid, accessv1alpha1.ReasonMismatch, accessv1alpha1.ReasonMinterExpired:
		return "run mcctl join " + a.Name + " again with the same flags: it makes what is missing"
	case accessv1alpha1.ReasonLoopback:
		return "run mcctl join " + a.Name + " again, with the address for the hub in --advertise-server"
	case accessv1alpha1.ReasonTokenRefused:
		return "run mcctl federate " + a.Name + ", and give the member's API server what it prints"
	default:
		return "see that the hub's Pods reach " + a.Spec.Server
	}
}

func state(m *membersv1alpha1.Member, now time.Time) finding {
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
	if m.Status.Reason != "" && !m.Spec.Paused && !m.Spec.Drained { // these have a line of their own
		f.says += "\n" + m.Status.Reason + ": " + m.Status.Message
		f.cure = cureOfState(m.Status.Reason)
	}
	return f
}

// cureOfState says what to do about the reason of a state, which is one of those of package fleet.
func cureOfState(reason string) string {
	switch reason {
	case "Refused", "Timeout", "DNS", "ServerError":
		return "see that the member's API server runs, and that the hub's Pods reach it"
	case "Unauthorized":
		return "renew the credentials where they come from; for a ClusterAccess run mcctl join again"
	case "Certificate":
		return "correct the CA: the server shows another certificate, or is another server"
	case "AnotherCluster":
		return "make sure that the address is that of the cluster which is meant"
	case "Forbidden", "NotSynced":
		return "give the account of the controllers the rights that are missing: mcctl check tells which, mcctl rbac gives them"
	default:
		return "see docs/operating.md for the reason " + reason
	}
}

func identity(m *membersv1alpha1.Member) finding {
	f := finding{about: "Identity", says: orElse(m.Status.Identity, "not known; the right to get the namespace kube-system is missing, or it was never reached")}
	if len(m.Status.Duplicates) > 0 {
		f.says += ", as have " + strings.Join(m.Status.Duplicates, ", ")
		f.cure = "let all but one of them leave: they are the same cluster, and its objects are reconciled for each"
	}
	return f
}

func kinds(m *membersv1alpha1.Member) finding {
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
		cure := cureOfState(n.Reason)
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
	why := ""
	if m.Spec.Reason != "" {
		why = ": " + m.Spec.Reason
	}
	switch {
	case m.Spec.Drained:
		f.says, f.cure = "drained"+why, "mcctl undrain "+m.Spec.ClusterName
	case m.Spec.Paused:
		f.says, f.cure = "yes"+why, "mcctl resume "+m.Spec.ClusterName
	case m.Status.Leaving:
		f.says = "no, but it is leaving"
	}
	return f
}
