package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// known is what the hub has of one member. Either may be nil: members of other providers have no ClusterAccess, and where managers
// write no Members, there is only the ClusterAccess.
type known struct {
	member *membersv1alpha1.Member
	access *accessv1alpha1.ClusterAccess
}

// find returns what the hub has of a member. What the caller may not read in a namespace of others is taken for not there.
func (r *reached) find(ctx context.Context, name string) (known, error) {
	k := known{member: &membersv1alpha1.Member{}, access: &accessv1alpha1.ClusterAccess{}}
	k.member.SetGroupVersionKind(membersv1alpha1.GroupVersion().WithKind(membersv1alpha1.Kind))
	k.member.Namespace, k.member.Name = r.namespace, membersv1alpha1.ObjectName(name)
	k.access.SetGroupVersionKind(accessv1alpha1.GroupVersion().WithKind(accessv1alpha1.KindClusterAccess))
	key, mayBe := r.accessOf(name)
	k.access.Namespace, k.access.Name = key.Namespace, key.Name
	member, err := r.have(ctx, k.member)
	if err != nil {
		return known{}, err
	}
	access := false
	if mayBe {
		access, err = r.have(ctx, k.access)
		if apierrors.IsForbidden(err) && member && key.Namespace != r.namespace {
			err = nil // other providers call members so too, and the rights of the caller may be of one namespace
		}
		if err != nil {
			return known{}, err
		}
	}
	if !member {
		k.member = nil
	}
	if !access {
		k.access = nil
	}
	if !member && !access {
		return known{}, fmt.Errorf("the hub (%s) has no member %q in the namespace %q; mcctl list shows those that there are, and --namespace chooses another namespace",
			r.config.Host, name, r.namespace)
	}
	return k, nil
}

// accessOf returns where the ClusterAccess of a member is, if it may have one. A provider of those of all namespaces calls members
// "namespace/name", and their Members are in the one namespace of these.
func (r *reached) accessOf(member string) (key client.ObjectKey, mayBe bool) {
	return accessOf(r.namespace, member)
}

func accessOf(namespace, member string) (key client.ObjectKey, mayBe bool) {
	key = client.ObjectKey{Namespace: namespace, Name: member}
	if namespace, name, found := strings.Cut(member, "/"); found {
		key = client.ObjectKey{Namespace: namespace, Name: name}
	}
	return key, len(content.IsPathSegmentName(key.Namespace))+len(content.IsPathSegmentName(key.Name)) == 0 && key.Namespace != "" && key.Name != ""
}

// names returns what programs call a member: by the name of its ClusterAccess alone, or with the namespace of that.
func (r *reached) names(member string) []string {
	key, mayBe := r.accessOf(member)
	if !mayBe {
		return []string{member}
	}
	return []string{key.Name, key.String()}
}

// namesakes returns the members of the same cluster that have the name of another in other namespaces of the hub. unlisted says that the caller
// may not list ClusterAccesses, so that it is not known whether there are such.
func (r *reached) namesakes(ctx context.Context, of joined, identity string) (all []string, unlisted bool, err error) {
	key, mayBe := r.accessOf(of.name)
	if !mayBe {
		return nil, false, nil
	}
	list := &accessv1alpha1.ClusterAccessList{}
	err = r.List(ctx, list, byName(key.Name))
	if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, apierrors.IsForbidden(err), nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list the ClusterAccesses %s in the %s (%s): %w", key.Name, r.name, r.config.Host, err)
	}
	for i := range list.Items {
		one := &list.Items[i]
		if one.Namespace == key.Namespace {
			continue
		}
		noted, err := r.noted(ctx, one)
		if err != nil {
			return nil, false, err
		}
		if noted == identity || noted == "" && (of.access == nil || of.access.Spec.Server == one.Spec.Server) {
			all = append(all, client.ObjectKeyFromObject(one).String())
		}
	}
	return all, false, nil
}

// noted returns which cluster an access leads to, as join has noted it there or a manager in the Member. It is empty if neither has.
func (r *reached) noted(ctx context.Context, access *accessv1alpha1.ClusterAccess) (string, error) {
	if identity := access.Annotations[membership.IdentityAnnotation]; identity != "" {
		return identity, nil
	}
	key := client.ObjectKeyFromObject(access)
	members, err := r.seen(ctx, key)
	return r.seenAs(key, members), err
}

// have reads an object, and reports whether it is there. A kind that is not served has no objects.
func (r *reached) have(ctx context.Context, obj client.Object) (bool, error) {
	what := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it was one
	if err := r.misnamed(obj); err != nil {
		return false, err
	}
	err := r.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	switch {
	case err == nil:
		obj.GetObjectKind().SetGroupVersionKind(what.GetObjectKind().GroupVersionKind())
		return true, nil
	case notfound.Is(err, what.GetName()), meta.IsNoMatchError(err):
		return false, nil
	default:
		return false, r.failed("read", what, err)
	}
}

// leases remembers which Leases are held, for a list of many members with few writers.
type leases map[membersv1alpha1.Lease]bool

// stale reports whether nobody keeps the status of a Member up to date: the Lease of its writer has lapsed, or is gone. A Lease that the
// caller may not read is taken for held.
func (l leases) stale(ctx context.Context, hub client.Reader, m *membersv1alpha1.Member) bool {
	if m.Status.Lease == nil {
		return false
	}
	held, asked := l[*m.Status.Lease]
	if !asked {
		lease := &coordinationv1.Lease{}
		err := hub.Get(ctx, client.ObjectKey{Namespace: m.Status.Lease.Namespace, Name: m.Status.Lease.Name}, lease)
		held = err != nil && !notfound.Is(err, m.Status.Lease.Name) || err == nil && !lapsed(lease, time.Now())
		l[*m.Status.Lease] = held
	}
	return !held
}

// lapsed reports whether nobody has renewed a Lease for as long as it says. A clock may be off by as much again.
func lapsed(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Sub(spec.RenewTime.Time) > 2*time.Duration(*spec.LeaseDurationSeconds)*time.Second
}

// condition returns the condition Ready of what is known.
func (k known) condition() *metav1.Condition {
	if k.member != nil {
		return meta.FindStatusCondition(k.member.Status.Conditions, membersv1alpha1.ConditionReady)
	}
	return meta.FindStatusCondition(k.access.Status.Conditions, accessv1alpha1.ConditionReady)
}

// ready reports whether the member is, and why not.
func (k known) ready() (is bool, why string) {
	c := k.condition()
	switch {
	case c == nil:
		return false, "no manager has said anything of it yet"
	case c.Status == metav1.ConditionTrue:
		return true, ""
	default:
		return false, c.Reason + ": " + c.Message
	}
}

// readyAt is ready of what the ClusterAccess says now, which leads to a server. What was found of an earlier one does not count.
func (k known) readyAt(server string) (is bool, why string) {
	if k.access == nil {
		return false, "its ClusterAccess is gone"
	}
	c := meta.FindStatusCondition(k.access.Status.Conditions, accessv1alpha1.ConditionReady)
	if c != nil && c.ObservedGeneration != k.access.Generation {
		return false, "no manager has tried the ClusterAccess as it is now"
	}
	if k.member != nil && k.member.Status.Server != server {
		return false, fmt.Sprintf("the manager has it at %q, and not yet at %s", k.member.Status.Server, server)
	}
	return k.ready()
}
