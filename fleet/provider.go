package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ClusterName names a member. It is mcreconcile's type under the name that providers need.
type ClusterName = mcreconcile.ClusterName

// Provider discovers clusters and reports them. It only describes: it connects to no member, starts no cache and keeps
// no map of engaged clusters. Where it also implements [fmt.Stringer], logs and errors call it by that.
type Provider interface {
	// Run reports to members what it discovers, and returns when ctx is done. local is the cluster that the manager
	// runs against, started, for providers that discover by objects in it.
	//
	// Run is called once, on every replica. An error that Run returns before ctx is done stops the manager, so a
	// provider retries what may pass, and reports a member that it cannot describe with [Member.Err].
	Run(ctx context.Context, local cluster.Cluster, members Members) error
}

// Refresher is a [Provider] that can be asked for fresh credentials, such as one that gets them from a service.
type Refresher interface {
	// Refresh is called when the server of a member does not accept the credentials of its Config. It reports others by
	// [Members.Set], which it may also do later. It is called for several members at once, but for one not twice at once,
	// nor more often than [Options.MaxRetryPeriod] says. ctx ends with the member, with news of how to reach it, or after
	// [Options.ConnectTimeout]. An error goes to the log, and must carry no secrets.
	Refresh(ctx context.Context, name ClusterName) error
}

// NewProvider returns a [Provider] of a function, which is its method Run. Logs and errors call it by the name.
func NewProvider(name string, run func(ctx context.Context, local cluster.Cluster, members Members) error) Provider {
	return namedProvider{name: name, run: run}
}

type namedProvider struct {
	name string
	run  func(context.Context, cluster.Cluster, Members) error
}

// Run implements [Provider].
func (p namedProvider) Run(ctx context.Context, local cluster.Cluster, members Members) error {
	return p.run(ctx, local, members)
}

func (p namedProvider) String() string { return p.name }

// Members is what a provider reports to. No method of it waits for a cluster. They are safe for concurrent use.
type Members interface {
	// Set reports a new member, or news of a known one. It returns an error that wraps [ErrInvalidMember] if m cannot be
	// used, and [ErrStopped] after the fleet has ended; nothing changes then.
	//
	// Setting the same member again changes nothing, however often. Setting another cluster under the same name has it
	// take the place of the first once it is connected; a provider that does not want the first to go on until then
	// removes it before. One that is set while it is being drained is a new member after that. One that was about to leave
	// stays.
	Set(m Member) error

	// Leave reports a member that is about to leave, and news of it. It goes on as a member, and controllers reconcile each of
	// its objects once more, so that they can take back what they have put there: their reconcilers see it by
	// mcreconcile.Leaving. The member has left, and is drained, when no controller has a request of it that is not done, or
	// after [Options.LeaveTimeout]. Leave returns at once. left is closed when the member has left and is drained; from
	// then on it is no member, however often Leave is called again, until Set or Remove is.
	//
	// Leaving again changes nothing but what m says. Set ends the leaving, unless the drain has begun: controllers reconcile each
	// object once more then, so that they can put back what they have taken back. Remove drains the member
	// at once, which closes left too. left is not closed while the fleet ends, nor for a member that stays. A member that is not
	// known, as after a restart, is connected in order to leave. Only the replica that is elected lets members leave: for
	// others they are members that are about to, until they are removed.
	//
	// The errors are those of Set.
	Leave(m Member) (left <-chan struct{}, err error)

	// Remove withdraws a member, and returns at once. The channel is closed when the member is drained: its watches are
	// closed and the last of its reconciles has returned. It is closed already for a name that is not known.
	Remove(name ClusterName) (drained <-chan struct{})

	// SetProblem reports what keeps the provider from discovering, and no member can show; what is wrong with a member
	// goes into [Member.Err]. A Problem with an empty Reason ends the one that has the same Provider, About and Member.
	// Setting the same again changes nothing. It is logged when it begins and when it ends.
	SetProblem(p Problem)
}

// Member is a cluster as a provider describes it. Exactly one of Config, Load, Cluster and Err is set.
type Member struct {
	// Name identifies the member in its fleet: up to [MaxNameLength] printable characters without spaces.
	Name ClusterName

	// Config is the way to reach the cluster. The fleet builds a client and a cache of it, and owns both.
	// It must not be changed after it was given.
	Config *rest.Config

	// Load makes the Config when the member is connected, here or as a guest. It is for providers that can make it again of
	// what they keep anyway: a replica keeps no config of a member that another one works on. It is called for several members
	// at once, and must not wait for anything remote. It returns the config of Revision, which must be set, or an error if there is
	// another one by now, of which the provider is about to tell. The error must carry no secrets.
	Load func() (*rest.Config, error)

	// Revision tells configs apart: a Config with the same Revision as the one before is taken for unchanged. A hash
	// of what the Config was made of serves well. Without it, configs are compared field by field, and functions in
	// them (Dial, Proxy, WrapTransport) count as equal if they are the same code, whatever they have captured.
	Revision string

	// Cluster is for clusters that exist as objects already, such as a namespace of a shared cluster. Whoever made it
	// starts and stops it; the fleet does neither, and does not probe it. Without Identity it is asked about once a minute which
	// cluster it is.
	Cluster cluster.Cluster

	// Err says why the provider cannot describe a way to reach the member, such as content that does not parse. The
	// member is then shown as Pending, with this message and the reason [ReasonInvalid], or that which a method
	// Reason() string of the error returns. If it is engaged, the engagement goes on, and the reason shows. The message
	// must carry no secrets.
	Err error

	// Identity says which cluster this is, whatever it is called. Set it only where the fleet cannot read it from the
	// cluster: where there is no namespace kube-system, or it is not the member's own, as when members are namespaces.
	// It must be what no other cluster has, now or later, such as a UID.
	// Default: the UID of the member's namespace kube-system, if its credentials may get that.
	Identity string

	// Expires is when the credentials of Config are no longer accepted, for those who watch over that. Zero if that is
	// not known. It changes nothing about how the member is treated.
	Expires time.Time

	// Labels are matched by the selectors of watches. They may change while the member stays engaged.
	Labels map[string]string
}

// MaxNameLength is the longest name of a member, in bytes. It holds "namespace/name" of any Kubernetes object: a
// namespace has up to 63 characters and a name up to 253.
const MaxNameLength = 63 + 1 + 253

// ErrInvalidMember is returned for a member that cannot be used; the error that wraps it says what to change.
var ErrInvalidMember = errors.New("invalid member")

// Validate returns an error that wraps [ErrInvalidMember] if m cannot be used.
func (m Member) Validate() error {
	if err := validateName(string(m.Name)); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{m.Config != nil, m.Load != nil, m.Cluster != nil, m.Err != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("%w %q: set exactly one of Config, Load, Cluster and Err, not %d of them", ErrInvalidMember, m.Name, given)
	}
	if m.Load != nil && m.Revision == "" {
		return fmt.Errorf("%w %q: set Revision beside Load", ErrInvalidMember, m.Name)
	}
	return nil
}

// hasConfig reports whether the member is reached by a config, which may have to be loaded.
func (m Member) hasConfig() bool { return m.Config != nil || m.Load != nil }

// Loaded returns the member with its Config, if it is described by one, and without Load. It is for a [Members] that stands between
// a provider and the fleet, and looks at configs.
func (m Member) Loaded() (Member, error) {
	if m.Load == nil {
		return m, nil
	}
	cfg, err := m.Load()
	switch {
	case err != nil:
		return m, fmt.Errorf("loading the config: %w", err)
	case cfg == nil:
		return m, errors.New("loading the config: the provider's Member.Load returned none")
	}
	m.Config, m.Load = cfg, nil
	return m, nil
}

func validateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the empty name is the local cluster's", ErrInvalidMember)
	case len(name) > MaxNameLength:
		return fmt.Errorf("%w %.60q…: the name has %d bytes, %d are allowed", ErrInvalidMember, name, len(name), MaxNameLength)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w %q: the name is not valid UTF-8", ErrInvalidMember, name)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("%w %q: the name has characters that do not print, or spaces", ErrInvalidMember, name)
	}
	return nil
}
