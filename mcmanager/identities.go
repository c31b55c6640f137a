package mcmanager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Identities knows which clusters they are that a manager's names lead to, for owner references that are made by
// hand. Package dependents needs none. It is safe for concurrent use.
type Identities struct {
	// Manager has the clusters. Required.
	Manager Manager

	// ByName allows clusters of which it cannot be told which they are, see mcowner.ClusterID.
	ByName bool

	mu    sync.Mutex // guards what follows; nothing is asked while it is held
	local types.UID
	asked time.Time
}

// ErrNoIdentity is returned for a cluster of which it cannot be told which it is.
var ErrNoIdentity = errors.New("it cannot be told which cluster it is; grant get on the namespace kube-system there, let the provider say it, or set ByName")

// askAgain is when the local cluster is asked again that did not say which it is: the right to get that may be given.
const askAgain = time.Minute

// Of returns which cluster it is that has a name: that of the request, if ctx is that of a reconcile in this cluster, and
// otherwise the one that has the name now. The error is a fleet.StateError for a member that cannot be used now, wraps
// fleet.ErrDisengaged if the request's cluster was replaced meanwhile, is that of the local cluster's API server, which is
// asked once, or wraps [ErrNoIdentity], but not with ByName.
func (i *Identities) Of(ctx context.Context, name mcreconcile.ClusterName) (mcowner.ClusterID, error) {
	if name == mcreconcile.LocalCluster {
		uid, err := i.ofLocal(ctx)
		if err != nil {
			return mcowner.ClusterID{}, err
		}
		return i.checked(name, uid)
	}
	engagement, err := i.Manager.GetFleet().Engagement(name)
	if err != nil {
		return mcowner.ClusterID{}, err
	}
	in, reconciles := mcreconcile.ClusterNameFrom(ctx)
	if reconciles && in == name && !isSame(engagement.Cluster(), mcreconcile.ClusterFrom(ctx)) {
		return mcowner.ClusterID{}, fmt.Errorf("cluster %q was connected anew: %w", name, fleet.ErrDisengaged)
	}
	return i.OfEngagement(engagement)
}

// OfGuest returns which cluster it is that a guest of a member is connected with, by its identity. The error is that of [Identities.Of].
func (i *Identities) OfGuest(name mcreconcile.ClusterName, identity string) (mcowner.ClusterID, error) {
	return i.checked(name, uidOf(identity))
}

// OfGuestNow returns which cluster it is that a guest is connected with, asked at this moment where nobody else notices that another cluster
// answers. The UID may be empty.
func (i *Identities) OfGuestNow(ctx context.Context, name mcreconcile.ClusterName, g *fleet.Guest) (mcowner.ClusterID, error) {
	identity, err := g.IdentityNow(ctx)
	if err != nil {
		return mcowner.ClusterID{}, fmt.Errorf("cluster %q: %w", name, err)
	}
	return mcowner.ClusterID{Name: name, UID: uidOf(identity), ByName: i.ByName}, nil
}

// OfEngagement returns which cluster it is that a member is engaged with. The error is that of [Identities.Of].
func (i *Identities) OfEngagement(e *fleet.Engagement) (mcowner.ClusterID, error) {
	return i.checked(e.Name(), uidOf(e.Identity()))
}

func (i *Identities) checked(name mcreconcile.ClusterName, uid types.UID) (mcowner.ClusterID, error) {
	id := mcowner.ClusterID{Name: name, UID: uid, ByName: i.ByName}
	if uid == "" && !i.ByName {
		return mcowner.ClusterID{}, fmt.Errorf("cluster %q: %w", name, ErrNoIdentity)
	}
	return id, nil
}

// Now is [Identities.Of], asked at this moment where nobody else notices that another cluster answers: in the local cluster,
// whose e is nil, and in a cluster that a provider made. The UID may be empty.
func (i *Identities) Now(ctx context.Context, e *fleet.Engagement) (mcowner.ClusterID, error) {
	if e == nil {
		uid, err := i.ofLocalNow(ctx)
		return mcowner.ClusterID{UID: uid, ByName: i.ByName}, err
	}
	identity, err := e.IdentityNow(ctx)
	if err != nil {
		return mcowner.ClusterID{}, fmt.Errorf("cluster %q: %w", e.Name(), err)
	}
	return mcowner.ClusterID{Name: e.Name(), UID: uidOf(identity), ByName: i.ByName}, nil
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
		return "", fmt.Errorf("the local cluster: %w", err)
	}
	return uidOf(identity), nil
}
