package sharding

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// Options say which replicas share members, and how. The zero value works in a pod of a Deployment or of a StatefulSet.
type Options struct {
	// ID is the same for all replicas that share members, and for no others in the namespace: those of another program or fleet
	// would share them too. It is a DNS label. Default: the name of the Deployment or StatefulSet, which the name of the pod tells.
	ID string

	// Namespace is where the Leases are. Default: the pod's.
	Namespace string

	// Name is the replica's name, different for each. Default: the environment variable POD_NAME, else the name of the host.
	Name string

	// Revision is the same for all replicas that run the same version. While replicas of several revisions run, members move
	// to those of the newest, and nothing is balanced, so that a rolling update moves each member about once. Default: the
	// hash of the pod's ReplicaSet.
	Revision string

	// Pool is the pool that the replica belongs to, a DNS label. It works on members whose label fleet-runtime.dev/shard-pool
	// has this value alone. The local cluster belongs to the replicas without a pool: where all have one, none works on requests
	// of it. Default: the pool of members without the label.
	Pool string

	// Capacity is how much the replica takes in relation to the others, from 1 to 1000. Default: 1.
	Capacity int

	// Measure shares members by what they cost: the time that their reconciles take. Otherwise each counts as one. A member with
	// the label fleet-runtime.dev/shard-weight counts as that says in any case. It is the same for all replicas.
	Measure bool

	// LeaseDuration is how long a replica may be silent until others take over what it owned. It is rounded up to seconds. The
	// replica itself stops after 8/15 of it, renews at every fifth, and waits for an answer for 2/15 of it. Default: 15 s. The
	// longest is 10 min.
	LeaseDuration time.Duration

	// HandOverTimeout is how long it may take a replica to give members up that are to move, until they stay there after all.
	// They cannot stay with a replica that is about to end: after this time it does as after DrainTimeout. Default: 5 min.
	HandOverTimeout time.Duration

	// DrainTimeout is how long the replica waits at most for what runs for members that are to move. Then it gives them up
	// although something still runs, such as a reconciler that ignores its context. That can write nothing to the member any
	// more, but what else it does goes on beside the new owner's work. It is never shorter than 8/15 of LeaseDuration.
	// Default: no limit, but HandOverTimeout for a replica that is about to end.
	DrainTimeout time.Duration

	// Settle is how long after a replica has joined, or members have come, nothing moves for the sake of balance. If more
	// come, it begins anew, but for six times as long at most. Default: 5 s.
	Settle time.Duration

	// Buckets is in how many parts members are shared. It holds when the table is made, and counts for as long as that lives.
	// Default: 1024, which suffices for 50 replicas.
	Buckets int

	// Logger is the logger. Default: controller-runtime's.
	Logger logr.Logger
}

// Bounds and defaults of options.
const (
	defaultLease    = 15 * time.Second
	longestLease    = 10 * time.Minute
	defaultHandOver = 5 * time.Minute
	defaultSettle   = 5 * time.Second
	settleAtMost    = 6 // times Options.Settle
)

func (o Options) withDefaults() (Options, error) {
	if o.Logger.GetSink() == nil {
		o.Logger = log.Log.WithName("sharding")
	}
	o.LeaseDuration = (positive(o.LeaseDuration, defaultLease) + time.Second - 1).Truncate(time.Second)
	o.HandOverTimeout = positive(o.HandOverTimeout, defaultHandOver)
	o.Settle = positive(o.Settle, defaultSettle)
	if o.Capacity == 0 {
		o.Capacity = 1
	}
	if o.Buckets == 0 {
		o.Buckets = protocol.DefaultBuckets
	}
	if err := o.findItself(); err != nil {
		return o, err
	}
	return o, o.validate()
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// findItself finds what the environment of the program tells.
func (o *Options) findItself() error {
	pod, err := inpod.Name()
	if err != nil && o.Name == "" {
		return fmt.Errorf("sharding: finding a name of this replica: %w; set Options.Name", err)
	}
	if o.Name == "" {
		o.Name = pod
	}
	o.Name = fitForLease(o.Name)
	workload, revision, known := inpod.Workload(pod)
	if o.Revision == "" {
		o.Revision = revision
	}
	if o.ID == "" {
		if o.ID = workload; !known {
			return fmt.Errorf("sharding: the name %q is not that of a pod of a Deployment or StatefulSet, and so does not tell which replicas "+
				"share members; set Options.ID to the same for each of them", pod)
		}
	}
	if o.Namespace == "" {
		if o.Namespace, err = inpod.Namespace(inpod.NamespaceFile); err != nil {
			return fmt.Errorf("sharding: %w, or Options.Namespace", err)
		}
	}
	return nil
}

func (o *Options) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sharding: "+format, args...)) }
	if problems := validation.IsDNS1123Label(o.ID); len(problems) > 0 {
		refuse("Options.ID %q: %s", o.ID, problems[0])
	}
	if problems := validation.IsDNS1123Label(o.Pool); o.Pool != "" && len(problems) > 0 {
		refuse("Options.Pool %q: %s", o.Pool, problems[0])
	}
	if problems := validation.IsValidLabelValue(o.Revision); len(problems) > 0 {
		refuse("Options.Revision %q: %s", o.Revision, problems[0])
	}
	if o.LeaseDuration > longestLease {
		refuse("Options.LeaseDuration is %s, and %s at most", o.LeaseDuration, longestLease)
	}
	if o.Capacity < 1 || o.Capacity > protocol.MaxCapacity {
		refuse("Options.Capacity is %d, and has to be from 1 to %d", o.Capacity, protocol.MaxCapacity)
	}
	if o.Buckets < 1 || o.Buckets > protocol.MaxBuckets {
		refuse("Options.Buckets is %d, and has to be from 1 to %d", o.Buckets, protocol.MaxBuckets)
	}
	return errors.Join(errs...)
}

// times are what follows from the duration of a Lease.
type times struct {
	lease time.Duration // after which others fence a silent session
	valid time.Duration // for which a session may work after it has sent a renewal. lease/valid = 1.875: two clocks may differ by that
	renew time.Duration // between renewals
	try   time.Duration // for an answer
	step  time.Duration // that each further replica waits for those before it; after a request that was refused
}

func timesOf(lease time.Duration) times {
	return times{lease: lease, valid: lease * 8 / 15, renew: lease / 5, try: lease * 2 / 15, step: lease / 15}
}

// Names of Leases, and what is in them.
const (
	labelSharding = "fleet-runtime.dev/sharding"

	annotationPool     = "fleet-runtime.dev/shard-pool"
	annotationTable    = "fleet-runtime.dev/table"    // of a session: the UID of the table that it knows
	annotationRenewal  = "fleet-runtime.dev/renewal"  // of a session: the number of its last renewal
	annotationRevision = "fleet-runtime.dev/revision" // of a session
	annotationCapacity = "fleet-runtime.dev/capacity" // of a session
	annotationCosts    = "fleet-runtime.dev/costs"    // of a session that measures what its buckets cost
	annotationMembers  = "fleet-runtime.dev/members"  // of a session: a sample of the members that it knows
	annotationProgram  = "fleet-runtime.dev/program"  // of a session: the package path of the program
	annotationDraining = "fleet-runtime.dev/draining" // of a session that is about to end

	annotationBuckets = "fleet-runtime.dev/buckets" // of the table: its content
)

// AnnotationPod is on the Lease of a session, with the name of the pod that it runs in, empty if that is not known. The holder of
// the Lease is the session, and a replica has another session whenever it has lost one.
const AnnotationPod = "fleet-runtime.dev/pod"

// Labels of members.
const (
	// LabelKey keeps members together: those of the same key have the same owner. The key of a member without the label is
	// its name.
	LabelKey = "fleet-runtime.dev/shard-key"
	// LabelWeight is how much work a member is in relation to others, from 1 to 1000. Without the label it is 1, or what is
	// measured: see [Options.Measure].
	LabelWeight = "fleet-runtime.dev/shard-weight"
	// LabelPool is the pool of replicas that work on a member: see [Options.Pool].
	LabelPool = "fleet-runtime.dev/shard-pool"
)

const (
	sessionInfix   = ".s."
	tableSuffix    = ".table"
	longestName    = 253 // of an object
	lengthOfRandom = 8
)

func (o *Options) tableName() string {
	if o.Pool == "" {
		return o.ID + tableSuffix
	}
	return o.ID + "." + o.Pool + tableSuffix
}

func (o *Options) leaseName(session string) string { return o.ID + sessionInfix + session }

// sessionOf returns which session has a Lease of this name, if it is that of a session.
func (o *Options) sessionOf(lease string) (string, bool) {
	session, ok := strings.CutPrefix(lease, o.ID+sessionInfix)
	return session, ok && !strings.HasSuffix(lease, tableSuffix)
}

// newSession returns the name of a session that there never was.
func (o *Options) newSession(random string) string { return o.Name + "-" + random }

// fitForLease makes a name of a replica fit to be a part of the name of a Lease.
func fitForLease(name string) string {
	const most = longestName - validation.DNS1123LabelMaxLength - len(sessionInfix) - len("-") - lengthOfRandom
	fit := []byte(strings.ToLower(name))
	for i, c := range fit {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			fit[i] = '-'
		}
	}
	if text := strings.Trim(string(fit[:min(len(fit), most)]), "-"); text != "" {
		return text
	}
	return "replica"
}

// replicaOf returns the name of the replica that a session is one start of.
func replicaOf(session string) string {
	if at := strings.LastIndexByte(session, '-'); at > 0 {
		return session[:at]
	}
	return session
}
