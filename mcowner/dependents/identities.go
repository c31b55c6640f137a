package dependents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Identities knows which clusters they are that a manager's names lead to, for references made by hand: see the field
// ClusterUID of mcowner.Reference and mcowner.Location. A [Reconciler] and a [Collector] need none. It is safe for
// concurrent use.
type Identities struct {
	// Manager has the clusters. Required.
	Manager mcmanager.Manager

	mu    sync.Mutex // guards what follows; nothing is asked while it is held
	local types.UID
	asked time.Time
}

// askAgain is when the local cluster is asked again that did not say which it is: the right to get that may be given.
const askAgain = time.Minute

// Of returns which cluster it is that has a name: that of the request, if ctx is that of a reconcile in this cluster, and
// otherwise the one that has the name now. It is empty if that is not known, as without the right to get the namespace
// kube-system. The error is a fleet.StateError for a member that cannot be used now, wraps fleet.ErrDisengaged if the
// request's cluster was replaced meanwhile, or is that of the local cluster's API server, which is asked once.
func (i *Identities) Of(ctx context.Context, name mcreconcile.ClusterName) (types.UID, error) {
	if name == mcreconcile.LocalCluster {
		return i.ofLocal(ctx)
	}
	engagement, err := i.Manager.GetFleet().Engagement(name)
	if err != nil {
		return "", err
	}
	in, reconciles := mcreconcile.ClusterNameFrom(ctx)
	if reconciles && in == name && !isSame(engagement.Cluster(), mcreconcile.ClusterFrom(ctx)) {
		return "", fmt.Errorf("cluster %q was connected anew: %w", name, fleet.ErrDisengaged)
	}
	return uidOf(engagement.Identity()), nil
}

// longestIdentity is that of an identity in references and owners, in characters. UIDs have 36.
const longestIdentity = 64

// uidOf returns an identity as it is written down. What a server says that it is may be of any length, and an owner has those
// of all its clusters: a long one is written as its hash.
func uidOf(identity string) types.UID {
	if len(identity) <= longestIdentity {
		return types.UID(identity)
	}
	sum := sha256.Sum256([]byte(identity))
	return types.UID(hex.EncodeToString(sum[:]))
}

// isSame reports whether two clusters are one value. Those of providers may be of types that cannot be compared.
func isSame(a, b cluster.Cluster) bool { return !reflect.ValueOf(a).Comparable() || a == b }

func (i *Identities) ofLocal(ctx context.Context) (types.UID, error) {
	i.mu.Lock()
	local, settled := i.local, i.local != "" || time.Since(i.asked) < askAgain
	i.mu.Unlock()
	if settled {
		return local, nil
	}
	now, err := i.ofLocalNow(ctx)
	if err != nil {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.local, i.asked = now, time.Now()
	return now, nil
}

// ofLocalNow asks the local cluster which it is. Nobody else notices when another one answers at its address.
func (i *Identities) ofLocalNow(ctx context.Context) (types.UID, error) {
	identity, err := fleet.ReadIdentity(ctx, i.Manager.GetAPIReader())
	if err != nil {
		return "", fmt.Errorf("%s: %w", clusterText(mcreconcile.LocalCluster), err)
	}
	return uidOf(identity), nil
}

// now returns which cluster it is, asked at this moment where nobody else notices when another one answers.
func (i *Identities) now(ctx context.Context, at session) (types.UID, error) {
	if at.engagement == nil {
		return i.ofLocalNow(ctx)
	}
	identity, err := at.engagement.IdentityNow(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", clusterText(at.name), err)
	}
	return uidOf(identity), nil
}
