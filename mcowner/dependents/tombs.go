package dependents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// tombs remember owners that went, or were let go, with the policy Orphan or Keep while they had dependents: such as in a cluster that was given
// up. If that is back one day, what the user asked to keep is not taken for an orphan. They are entries of a ConfigMap in the local
// cluster.
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

// bury notes that the dependents are to stay of an owner that is known, unless it is the one with this UID: its finalizer may have been
// taken before they were released.
func (c *engine) bury(ctx context.Context, req mcreconcile.Request, but types.UID) error {
	owner, stay := c.leavesBehind(req)
	if !stay || owner.UID == but {
		return nil
	}
	return c.tombs.put(ctx, owner)
}

// leavesBehind reports whether dependents of an owner may be left that are to stay, as far as it is known, and returns a reference to it.
func (c *engine) leavesBehind(req mcreconcile.Request) (owner mcowner.Reference, stay bool) {
	if o := c.ledger.get(req); o != nil {
		return o.leavesBehind(c.deletions)
	}
	return owner, false
}

// mayLeave reports whether an owner says that there may be dependents of it.
func (c *engine) mayLeave(owner client.Object) bool {
	return c.keys.On(owner) || c.keys.Read(owner).GivenUp
}

// isToStay reports whether the dependents of an owner that is gone are to stay, as is noted, or is about to be.
func (c *engine) isToStay(ctx context.Context, gone mcowner.Reference) (bool, error) {
	if owner, stay := c.leavesBehind(gone.Request()); stay && owner.UID == gone.UID {
		return true, nil
	}
	return c.tombs.has(ctx, gone)
}

func (t *tombs) get(ctx context.Context) (*corev1.ConfigMap, error) {
	ctx, cancel := t.access.Bound(ctx)
	defer cancel()
	namespace, err := t.namespace()
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.name + ".fleet-runtime.dev"}}
	return cm, t.reader.Get(ctx, client.ObjectKeyFromObject(cm), cm)
}

// entry returns the key of an owner in the ConfigMap.
func entry(owner mcowner.Reference) string { return strings.TrimPrefix(owner.Key(), mcowner.KeyPrefix) }

// put remembers an owner. Nobody else writes its entry.
func (t *tombs) put(ctx context.Context, owner mcowner.Reference) error {
	cm, err := t.get(ctx)
	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return t.failed(owner, err)
	}
	before := cm.DeepCopy()
	this := tomb{Owner: owner.String()}
	if json.Unmarshal([]byte(cm.Data[entry(owner)]), &this) == nil && this.has(owner) {
		return nil
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
		return t.put(ctx, owner)
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
	return fmt.Errorf("noting in the local cluster that the dependents of %s are to stay, in the ConfigMap %s.fleet-runtime.dev: %w", owner, t.name, err)
}

// has reports whether the dependents of an owner that is gone are to stay.
func (t *tombs) has(ctx context.Context, gone mcowner.Reference) (bool, error) {
	cm, err := t.get(ctx)
	if apierrors.IsNotFound(err) || errors.Is(err, errNoNamespace) {
		return false, nil // nothing was ever noted
	}
	if err != nil {
		return false, err
	}
	this := tomb{}
	noted, there := cm.Data[entry(gone)]
	readable := json.Unmarshal([]byte(noted), &this) == nil
	return there && (!readable || this.has(gone)), nil // somebody may have written to it: nothing is deleted for that
}

// errNoNamespace says that nothing can be noted in the local cluster.
var errNoNamespace = errors.New("it is not known in which namespace of the local cluster the program runs: set Reconciler.StateNamespace")
