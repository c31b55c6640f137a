package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// proof finds out whether owners are gone. What it cannot find out it does not guess.
type proof struct {
	access         *remote.Access
	owners         []remote.Kind
	decommissioned []mcowner.ClusterID
	missed         sync.Map // of decommissioned clusters that are not in the fleet, by name: since when
}

// finding is what was found out about a dependent.
type finding struct {
	why   string // it no longer belongs to the owner, empty if it does
	stray bool   // the owner is there, and has not noted that it has dependents here
	noted bool   // the owner is there, and has a record
	keep  bool   // the dependent is to stay, unless it says something else itself
}

// errUnproven is wrapped by the reasons for which it cannot be told whether an owner is gone.
var errUnproven = errors.New("it cannot be told whether the owner is gone")

// orphaned returns why a dependent in the named cluster no longer belongs to the owner, or nothing if it does. It asks the
// API server of the owner's cluster, but for slices that are remembered. Each page of the owner's slices waits for pace, if that is not nil. The
// error says why that cannot be told.
func (p *proof) orphaned(
	ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, pace func(context.Context) error, remembered *books,
) (found finding, err error) {
	if err := p.mayAsk(owner); err != nil {
		return found, err
	}
	k, _ := p.kindOf(owner)
	if p.isDecommissioned(owner) {
		gone, err := p.isAnotherNow(ctx, owner)
		if err != nil {
			return found, err
		}
		if gone {
			return finding{why: "its owner's cluster was decommissioned"}, nil
		}
	}
	err = p.access.Visit(ctx, owner.Cluster, func(ctx context.Context, home remote.Session) error {
		obj, outside := k.NewMetadata(), ctx
		before := p.sameCluster(ctx, home, owner) // another one may answer for a moment
		if remote.IsHung(before) || errors.Is(before, errAnotherCluster) {
			return before
		}
		ctx, cancel := p.access.Bound(ctx)
		defer cancel()
		err := home.Cluster.GetAPIReader().Get(ctx, owner.NamespacedName(), obj)
		switch {
		case notfound.Is(err, owner.Name):
			found.why = "its owner is gone"
		case err != nil:
			return err
		case obj.UID != owner.UID:
			found.why = "its owner is gone, and another one has the name"
		default:
			if home.Guest != nil {
				remembered.noteThere(obj, owner)
			}
			pages := p.pagesOf(home, pace)
			stray, err := remembered.isStray(outside, pages, obj, owner, in)
			if stray && pages.read > 1 { // which may have taken long
				err = p.unlessChanged(outside, pace, home, k, obj)
			}
			switch {
			case err != nil:
				return err
			case stray:
				found.stray = true
				if !wasGivenUp(obj, owner) {
					found.why = whyStray
				}
			default:
				found.noted = owner.Manager != "" && record.NewKeys(owner.Fleet, owner.Manager).On(obj)
			}
		}
		if found.why == "" && !found.stray {
			return nil
		}
		return cmp.Or(before, p.sameCluster(outside, home, owner))
	})
	if err != nil {
		return finding{}, fmt.Errorf("%w: %w", errUnproven, err)
	}
	return found, nil
}

// whyStray is why a dependent goes whose owner's record does not have its cluster.
const whyStray = "its owner has no dependents in this cluster any more"

// mayAsk returns why it would be in vain to ask for an owner: it cannot be told whether it is gone. It asks nobody.
func (p *proof) mayAsk(owner mcowner.Reference) error {
	if err := paths.CheckNames(owner.Namespace, owner.Name); err != nil { // a malformed reference, which nobody reads
		return fmt.Errorf("%w: %w", errUnproven, err)
	}
	if _, ok := p.kindOf(owner); !ok {
		return fmt.Errorf("%w: %s is not of the kinds of owners", errUnproven, owner)
	}
	if p.isDecommissioned(owner) {
		return nil
	}
	if err := p.access.WhyNot(owner.Cluster); err != nil {
		return fmt.Errorf("%w: %w", errUnproven, err)
	}
	return nil
}

// isDecommissioned reports whether the owner's cluster is said to be no more.
func (p *proof) isDecommissioned(owner mcowner.Reference) bool {
	return slices.ContainsFunc(p.decommissioned, func(c mcowner.ClusterID) bool {
		return c.Name == owner.Cluster && (c.UID == owner.ClusterUID || owner.ClusterUID == "")
	})
}

// isAnotherNow reports whether the name of the owner's cluster leads to none now, or to another one.
func (p *proof) isAnotherNow(ctx context.Context, owner mcowner.Reference) (bool, error) {
	if why := p.access.WhyNot(owner.Cluster); remote.IsMissing(why) {
		since, _ := p.missed.LoadOrStore(owner.Cluster, time.Now())
		if time.Since(since.(time.Time)) < remote.ReportedLate(why) { //nolint:forcetypeassert // stored here alone
			return false, fmt.Errorf("%w: it is said that its cluster is no more, and it may be reported yet: %w", errUnproven, why)
		}
		return true, nil
	}
	p.missed.Delete(owner.Cluster)
	now, err := p.access.AskID(ctx, owner.Cluster)
	if err != nil {
		return false, fmt.Errorf("%w: it is said that its cluster is no more, and one has that name: %w", errUnproven, err)
	}
	return mcowner.Differ(now.UID, owner.ClusterUID), nil
}

func (p *proof) kindOf(owner mcowner.Reference) (remote.Kind, bool) {
	i := slices.IndexFunc(p.owners, func(k remote.Kind) bool { return k.GroupKind() == owner.GroupKind() })
	if i < 0 {
		return remote.Kind{}, false
	}
	return p.owners[i], true
}

// errAnotherCluster says that an owner's cluster is, or may be, another one than when the reference was written.
var errAnotherCluster = errors.New("not the cluster that the owner was in")

// sameCluster returns an error, which wraps errAnotherCluster, if the owner's cluster is, or may be, another one than when the
// reference was written. A cluster is asked now where the fleet would not notice that another one answers.
func (p *proof) sameCluster(ctx context.Context, home remote.Session, owner mcowner.Reference) error {
	if owner.ClusterUID == "" {
		return nil
	}
	now, err := p.access.UIDNow(ctx, home)
	if err != nil {
		return err
	}
	if now != owner.ClusterUID {
		return differ(home.String(), now, owner)
	}
	return nil
}

// knownCluster returns an error, which wraps errAnotherCluster, if it is known without asking that the owner's cluster is another one than when
// the reference was written.
func (p *proof) knownCluster(ctx context.Context, owner mcowner.Reference) error {
	if p.isDecommissioned(owner) {
		return nil
	}
	ctx, cancel := p.access.Bound(ctx) // the local cluster is asked once
	defer cancel()
	known, err := p.access.IDOf(ctx, owner.Cluster)
	if err != nil || !mcowner.Differ(known.UID, owner.ClusterUID) {
		return nil // whoever asks finds out why
	}
	return fmt.Errorf("%w: %w", errUnproven, differ(remote.ClusterText(owner.Cluster), known.UID, owner))
}

func differ(home string, now types.UID, owner mcowner.Reference) error {
	return fmt.Errorf("%s is %w: its identity is %.64q, not %.64q", home, errAnotherCluster, string(now), string(owner.ClusterUID))
}

// notedBy returns where an owner that exists has noted that it may have dependents. One that is being deleted, or has no record,
// may have them anywhere: then the answer is false.
func notedBy(owner client.Object, ref mcowner.Reference) (record.Record, bool) {
	if ref.Manager == "" || !owner.GetDeletionTimestamp().IsZero() {
		return record.Record{}, false
	}
	keys := record.NewKeys(ref.Fleet, ref.Manager)
	return keys.Read(owner), keys.Holds(owner)
}

// pages reads lists page by page. Each page waits for pace, if that is not nil, and has what is left of the time in which all are answered.
type pages struct {
	client.Reader

	pace  func(context.Context) error
	left  time.Duration
	least time.Duration // of that a page takes at least: an API server may say without end that there are more
	read  int           // how many there were
}

func (p *proof) pagesOf(home remote.Session, pace func(context.Context) error) *pages {
	return &pages{Reader: home.Cluster.GetAPIReader(), pace: pace, left: p.access.Timeout, least: p.access.Timeout / 200}
}

// errLongList says that a list has more pages than are read.
var errLongList = errors.New("there are too many pages of slices")

// List implements client.Reader.
func (p *pages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if p.left <= 0 {
		return errLongList
	}
	if p.pace != nil {
		if err := p.pace(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.left)
	defer cancel()
	began := time.Now()
	err := p.Reader.List(ctx, list, opts...)
	p.left -= max(time.Since(began), p.least)
	p.read++
	return err
}

// unlessChanged returns an error if an owner is not as it was read: what its slices say may be older than what it says now.
func (p *proof) unlessChanged(
	ctx context.Context, pace func(context.Context) error, home remote.Session, k remote.Kind, owner client.Object,
) error {
	if pace != nil {
		if err := pace(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := p.access.Bound(ctx)
	defer cancel()
	now := k.NewMetadata()
	if err := home.Cluster.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(owner), now); err != nil {
		return err
	}
	if now.ResourceVersion != owner.GetResourceVersion() {
		return errors.New("the owner was changed while its slices were read")
	}
	return nil
}

// wasGivenUp reports whether an owner may have dependents in clusters that it has not noted any more: its controller alone can
// tell whether they are to stay.
func wasGivenUp(owner client.Object, ref mcowner.Reference) bool {
	return record.NewKeys(ref.Fleet, ref.Manager).Read(owner).GivenUp
}
