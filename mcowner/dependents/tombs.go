package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// tombs remember owners that went, or were let go, with the policy Orphan, or with Keep while they had dependents: such as in a cluster that was
// given up. If that is back one day, or as it was before, what the user asked to keep is not taken for an orphan. They are entries of
// ConfigMaps in the local cluster, of which the owners of each namespace of each cluster have their own: nobody takes the room of another
// tenant. They have sixteen, by how the key of an owner begins, since one has room for about 5000 owners.
type tombs struct {
	access    *remote.Access
	client    client.Client
	reader    client.Reader // which asks the API server
	namespace func() (string, error)
	name      string
}

// tomb is what is remembered of an owner: its UIDs, since one of the same name may have come and gone several times.
type tomb struct {
	Owner string   `json:"owner"`
	UIDs  []string `json:"uids"`
}

// bury notes that the dependents are to stay of the owners of a name that are known, but for the one with this UID: their finalizer may have
// been taken before they were released.
func (c *engine) bury(ctx context.Context, req mcreconcile.Request, but types.UID) error {
	for _, owner := range c.leftBehind(ctx, req) {
		if owner.UID == but {
			continue
		}
		if err := c.tombs.put(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

// leftBehind returns references to the owners of a name of which dependents may be left that are to stay, as far as it is known. They are in
// the ledger, or went before they were read.
func (c *engine) leftBehind(ctx context.Context, req mcreconcile.Request) (owners []mcowner.Reference) {
	o := c.ledger.get(req)
	if o != nil {
		if owner, stay := o.leavesBehind(c.deletions); stay {
			owners = append(owners, owner)
		}
	}
	for _, last := range c.deletions.lost(req) {
		ref, err := mcowner.ReferenceTo(c.cfg.fleet, mcowner.ByName(req.ClusterName), last, c.access.Manager.GetScheme())
		if err != nil || o != nil && o.uid == ref.UID {
			continue
		}
		ref.Manager = c.cfg.name
		policy, senseless := c.cfg.policyOf(ctx, last)
		unread := unplanned{owner: last, ref: ref, left: true, keep: policy.Keep || senseless != nil}
		if unread.keeps(c.deletions.policy(req, ref.UID)) {
			owners = append(owners, ref)
		}
	}
	return owners
}

// mayLeave reports whether an owner says that there may be dependents of it.
func (c *engine) mayLeave(owner client.Object) bool {
	return c.keys.On(owner) || c.keys.Read(owner).GivenUp
}

// isToStay reports whether the dependents of an owner that is gone are to stay, as is noted, or is about to be.
func (c *engine) isToStay(ctx context.Context, gone mcowner.Reference) (bool, error) {
	if slices.ContainsFunc(c.leftBehind(ctx, gone.Request()), func(owner mcowner.Reference) bool { return owner.UID == gone.UID }) {
		return true, nil
	}
	return c.tombs.has(ctx, gone)
}

// place returns what the ConfigMap is called that has an owner.
func (t *tombs) place(owner mcowner.Reference) string {
	return t.name + ".fleet-runtime.dev-" + mcowner.UniqueName(100, string(owner.Cluster), owner.Namespace) + "-" + entry(owner)[:1]
}

func (t *tombs) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	ctx, cancel := t.access.Bound(ctx)
	defer cancel()
	namespace, err := t.namespace()
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return cm, t.reader.Get(ctx, client.ObjectKeyFromObject(cm), cm)
}

// entry returns the key of an owner in the ConfigMap.
func entry(owner mcowner.Reference) string { return strings.TrimPrefix(owner.Key(), mcowner.KeyPrefix) }

// spareRoom is how many bytes a ConfigMap may have if it is to take an owner of which nothing is left: others have the rest for themselves.
// API servers take a megabyte.
const spareRoom = 512 << 10

// errNoRoom says that there is no room for an owner in its ConfigMap.
var errNoRoom = errors.New("there is no room in it")

// put remembers an owner. Nobody else writes its entry.
func (t *tombs) put(ctx context.Context, owner mcowner.Reference) error {
	return t.putWithin(ctx, owner, math.MaxInt)
}

// putWithin is put if the ConfigMap has less than these bytes.
func (t *tombs) putWithin(ctx context.Context, owner mcowner.Reference, room int) error {
	cm, err := t.get(ctx, t.place(owner))
	there := err == nil
	if err != nil && !notfound.Is(err, t.place(owner)) {
		return t.failed(owner, err)
	}
	before := cm.DeepCopy()
	this := tomb{Owner: owner.String()}
	noted, isNoted := cm.Data[entry(owner)]
	if err := json.Unmarshal([]byte(noted), &this); isNoted && (err != nil || this.has(owner)) {
		return nil // what cannot be read says that all stay
	}
	if cm.Size() >= room {
		return t.failed(owner, errNoRoom)
	}
	this.UIDs = append(this.UIDs, string(owner.UID))
	content, err := json.Marshal(this)
	if err != nil {
		return err
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[entry(owner)] = string(content)
	bounded, cancel := t.access.Bound(ctx)
	defer cancel()
	if there {
		return t.failed(owner, t.client.Patch(bounded, cm, client.MergeFrom(before)))
	}
	if err = t.client.Create(bounded, cm); apierrors.IsAlreadyExists(err) { // for another owner, this very moment
		return t.putWithin(ctx, owner, room)
	}
	return t.failed(owner, err)
}

func (t tomb) has(owner mcowner.Reference) bool {
	return slices.Contains(t.UIDs, string(owner.UID))
}

func (t *tombs) failed(owner mcowner.Reference, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("noting in the local cluster that the dependents of %s are to stay, in the ConfigMap %s: %w", owner, t.place(owner), err)
}

// has reports whether the dependents of an owner that is gone are to stay.
func (t *tombs) has(ctx context.Context, gone mcowner.Reference) (bool, error) {
	cm, err := t.get(ctx, t.place(gone))
	if notfound.Is(err, t.place(gone)) || errors.Is(err, errNoNamespace) {
		return false, nil // nothing was ever noted
	}
	if err != nil {
		return false, fmt.Errorf("reading the ConfigMap %s of the local cluster, which says it: %w", t.place(gone), err)
	}
	this := tomb{}
	noted, there := cm.Data[entry(gone)]
	readable := json.Unmarshal([]byte(noted), &this) == nil
	return there && (!readable || this.has(gone)), nil // somebody may have written to it: nothing is deleted for that
}

// errNoNamespace says that nothing can be noted in the local cluster.
var errNoNamespace = errors.New("it is not known in which namespace of the local cluster the program runs: set Reconciler.StateNamespace")
