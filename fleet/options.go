package fleet

import (
	"math"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// Options configure a [Fleet]. The zero value is usable.
type Options struct {
	// Logger is given the name of the member with every line. Default: controller-runtime's logger.
	Logger logr.Logger

	// Scheme of the members' clients and caches. Default: client-go's.
	Scheme *runtime.Scheme

	// ClusterOptions returns what is to be set for one member's cluster.Cluster, such as cache options, after the
	// fleet has set its own: its scheme, HTTP client, REST mapper, informers, and a cache transform that strips
	// managedFields. It may be called for several members at once. Default: nothing.
	ClusterOptions func(m Member) []cluster.Option

	// RESTConfig changes a copy of a member's config before it is used, such as its QPS, Timeout or UserAgent. It may be
	// called for several members at once, and must do the same each time. While it returns an error, which must carry no
	// secrets, the member is not connected. Default: nothing. A config without QPS is not limited by the client; the API
	// server's priority and fairness limits it.
	RESTConfig func(m Member, cfg *rest.Config) error

	// ConnectTimeout bounds one attempt to connect, from when it is its turn: members connect a few at a time.
	// Default: 10 seconds.
	ConnectTimeout time.Duration

	// MaxRetryPeriod is the longest pause between two attempts to connect, to list a kind, or to start the source of a controller.
	// Pauses begin at half a second and double. Where more than a thousand members are down, or do not serve a kind that is
	// wanted, attempts to connect, or to find the kind, are further apart: 100 a second of all members together, see
	// [HealthOptions]. Default: 10 seconds.
	MaxRetryPeriod time.Duration

	// RefuseDuplicates keeps a member from being engaged while another one is that is the same cluster, by its identity:
	// its objects would be reconciled twice. Where several replicas share the members, it knows of those alone that this
	// replica works on. Default: both are engaged, show each other in [Status.Duplicates], and are a [Problem].
	RefuseDuplicates bool

	// LeaveTimeout is how long a member may take to leave, see [Members.Leave]: from when it is about to, or from when this
	// replica is elected if that is later. Then it is drained whatever is left undone. Default: 5 minutes.
	LeaveTimeout time.Duration

	// MaxResponseBytes is how large one answer of a member may be, after decompression. It bounds the memory that a member
	// can take by an answer that does not end. A list of objects must fit; watches have no end and are not limited.
	// Default: 1 GiB.
	MaxResponseBytes int64

	// Ownership shares the members among several replicas. Default: this replica works on all members.
	Ownership Ownership

	// Observer follows what the fleet does. Default: none.
	Observer Observer

	// Health says how a member's health is found out.
	Health HealthOptions

	// MaxMemberSeries is how many members have metrics of their own; the counts of those beyond are summed under the
	// cluster "(other)". Default: 1000. A negative number means that none has.
	MaxMemberSeries int

	// MaxMembers is how many members there may be, with those that are being drained. The others are Pending until there is
	// room, of which the first by name joins first, and a [Problem] says how many they are. Default: 20000. A negative
	// number means that there is no limit.
	MaxMembers int
}

// HealthOptions say how a member's health is found out. A member is asked only when nothing was heard from it, or when
// a request to it failed or has no answer; it changes its state only after several answers of the same kind in a row.
//
// With the defaults a member that has no answer is Unreachable 5.5 seconds after a request was sent to it, or within 15
// seconds if none is. One that refuses connections is after 2 seconds. One that is back is Ready within 3 seconds.
//
// Members that are down, which are those that are [Unreachable] or cannot be connected, are asked 100 times a second at most
// all together, however many they are. The one that was asked longest ago is next. So of more than a hundred, each is asked
// less often than RetryInterval says: a thousand are within ten seconds. A probe of an Unreachable member waits for an answer
// for three of its turns, and for ProbeTimeout at least.
type HealthOptions struct {
	// ProbeInterval is how long nothing may be heard from a member before it is asked. It is shorter by up to a tenth at
	// random, and the first time by up to a half, so that members are not asked in step. Events of its watches count as
	// heard for six intervals since it has last answered a request. One of which it is not known which cluster it is, is asked for
	// that every six intervals. Default: 10 seconds.
	ProbeInterval time.Duration
	// RetryInterval is the time from one probe to the next once one has failed, or a request has. While a member is Ready,
	// the next probe does not wait for the answer to the last. A request that has had no answer for half of this time is a
	// reason to ask, and one that was under way for long before after a third of that time. Default: 1 second.
	RetryInterval time.Duration
	// ProbeTimeout bounds one probe of a member that is Ready. When it is over without an answer, the probes that were
	// sent meanwhile count as failed too. Default: 5 seconds.
	ProbeTimeout time.Duration
	// FailureThreshold is how many probes in a row must fail until a member is Unreachable. Default: 3.
	FailureThreshold int
	// SuccessThreshold is how many probes in a row must succeed until it is Ready again. Default: 2.
	SuccessThreshold int
}

// defaultMemberSeries is how many members have metrics of their own by default.
const defaultMemberSeries = 1000

func (o Options) withDefaults() Options {
	if o.Logger.GetSink() == nil {
		o.Logger = log.Log.WithName("fleet")
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.RESTConfig == nil {
		o.RESTConfig = func(Member, *rest.Config) error { return nil }
	}
	if o.ClusterOptions == nil {
		o.ClusterOptions = func(Member) []cluster.Option { return nil }
	}
	defaultTo(&o.ConnectTimeout, 10*time.Second)
	defaultTo(&o.MaxRetryPeriod, retry.Longest)
	defaultTo(&o.LeaveTimeout, 5*time.Minute)
	defaultTo(&o.MaxResponseBytes, 1<<30)
	defaultTo(&o.Health.ProbeInterval, 10*time.Second)
	defaultTo(&o.Health.RetryInterval, time.Second)
	defaultTo(&o.Health.ProbeTimeout, 5*time.Second)
	defaultTo(&o.Health.FailureThreshold, 3)
	defaultTo(&o.Health.SuccessThreshold, 2)
	if o.MaxMemberSeries == 0 {
		o.MaxMemberSeries = defaultMemberSeries
	}
	if o.MaxMembers < 0 {
		o.MaxMembers = math.MaxInt
	}
	defaultTo(&o.MaxMembers, defaultMembers)
	return o
}

func defaultTo[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
