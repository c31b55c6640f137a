package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// joined is what the hub knows of a member that has joined.
type joined struct {
	name string
	// namespace is the one in which it was looked for.
	namespace string
	// access is nil if there is none.
	access *accessv1alpha1.ClusterAccess
	// members has the Members of it: none where there is no ClusterAccess, or the caller may not read them.
	members []membersv1alpha1.Member
	// identity is that of the cluster that has joined, and empty if it is not known.
	identity string
	// namesakes are the members of the same cluster that have the name in other namespaces of the hub. unlisted says that there may be more,
	// as the caller may not list them.
	namesakes []string
	unlisted  bool
	// traceless says that there is neither a ClusterAccess nor anything that mcctl has made in the member.
	traceless bool
}

// joined asks the hub what has joined under a name. join has noted the identity on the ClusterAccess; for one that others have applied,
// the Member has what a manager has seen.
func (r *reached) joined(ctx context.Context, name string) (joined, error) {
	j := joined{name: name, namespace: r.namespace}
	access := &accessv1alpha1.ClusterAccess{}
	access.SetGroupVersionKind(accessv1alpha1.GroupVersion().WithKind(accessv1alpha1.KindClusterAccess))
	key, mayBe := r.accessOf(name)
	if !mayBe {
		return j, nil
	}
	access.Namespace, access.Name = key.Namespace, key.Name
	found, err := r.have(ctx, access)
	if err != nil || !found {
		return j, err
	}
	j.access, j.identity = access, access.Annotations[membership.IdentityAnnotation]
	j.members, err = r.seen(ctx, key)
	if j.identity == "" {
		j.identity = r.seenAs(key, j.members)
	}
	return j, err
}

// seenAs returns which cluster a manager has seen, as Members of an access say it in namespaces that are not of others.
func (r *reached) seenAs(access client.ObjectKey, members []membersv1alpha1.Member) (identity string) {
	for i := range members {
		if m := &members[i]; identity == "" && (m.Namespace == r.namespace || m.Namespace == access.Namespace) {
			identity = m.Status.Identity
		}
	}
	return identity
}

// seen returns the Members that managers have written of what has a ClusterAccess. A provider of one namespace has its Member there, under
// the same name. One of all namespaces has it anywhere, so those that may not list all look in the namespaces that they know.
func (r *reached) seen(ctx context.Context, access client.ObjectKey) ([]membersv1alpha1.Member, error) {
	own, everywhere := membersv1alpha1.ObjectName(access.Name), membersv1alpha1.ObjectName(access.String())
	places := []client.ObjectKey{{Namespace: access.Namespace, Name: own}}
	all := &membersv1alpha1.MemberList{}
	switch err := r.List(ctx, all, byName(everywhere)); {
	case apierrors.IsForbidden(err):
		places = append(places, client.ObjectKey{Namespace: access.Namespace, Name: everywhere}, client.ObjectKey{Namespace: r.namespace, Name: everywhere})
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for the Member %s in the %s (%s): %w", everywhere, r.name, r.config.Host, err)
	}
	for _, place := range places {
		m := membersv1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: place.Namespace, Name: place.Name}}
		m.SetGroupVersionKind(membersv1alpha1.GroupVersion().WithKind(membersv1alpha1.Kind))
		found, err := r.have(ctx, &m)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		if found {
			all.Items = append(all.Items, m)
		}
	}
	return slices.DeleteFunc(all.Items, func(m membersv1alpha1.Member) bool { return !r.isOf(access, &m) }), nil
}

// isOf reports whether a Member is of what has a ClusterAccess: it has the name of that, with its namespace or without. In the namespaces of
// others it counts only with a status, which managers write, since anybody there may create a Member.
func (r *reached) isOf(access client.ObjectKey, m *membersv1alpha1.Member) bool {
	if m.Spec.ClusterName != access.Name && m.Spec.ClusterName != access.String() {
		return false
	}
	return m.Namespace == r.namespace || m.Namespace == access.Namespace || m.Status.State != ""
}

// byName selects the objects of a name.
func byName(name string) client.MatchingFieldsSelector {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// heldBack says how a member is held back so that nothing is reconciled there, and what to do about it. Both are empty for one that is not.
func (j joined) heldBack() (how, cure string) {
	if j.access.Spec.Paused {
		return describe(j.access) + " is paused", unpause
	}
	for i := range j.members {
		if m := &j.members[i]; (m.Spec.Paused || m.Spec.Drained) && !m.Spec.Leave { // which goes before both
			return "the Member " + m.Namespace + "/" + m.Name + " is paused or drained", controls(m).cure
		}
	}
	return "", ""
}

// shownAs returns how describe calls it: a provider of all namespaces has the Member elsewhere, under the name with the namespace.
func (j joined) shownAs() (name, namespace string) {
	if len(j.members) > 0 {
		return j.members[0].Spec.ClusterName, j.members[0].Namespace
	}
	return j.name, j.namespace
}

// hint says under which names the cluster may have joined in other namespaces.
func (j joined) hint() string {
	if len(j.namesakes) == 0 {
		return ""
	}
	return "; it may have joined as " + strings.Join(j.namesakes, ", ") + ": name that, or its namespace with --namespace"
}

var errOtherCluster = errors.New("nothing was changed")

// stays makes sure that the ClusterAccess, if there is one, is not being deleted: it would go with what is written into it.
func (j joined) stays(hub *reached) error {
	if j.access == nil || j.access.DeletionTimestamp == nil {
		return nil
	}
	return fmt.Errorf("%s in the hub (%s) is being deleted, and the member is leaving: nothing was written. Run mcctl leave %s, with the context of "+
		"the member and the --dependents of before: it waits until the ClusterAccess is gone. Join then", describe(j.access), hub.config.Host, called(j.access))
}

// isCluster makes sure that a member is the cluster that has joined, if it is known which one that was.
func (j joined) isCluster(member *reached, identity string) error {
	if j.identity == "" || j.identity == identity {
		return nil
	}
	at := ""
	if j.access != nil {
		at = " at " + j.access.Spec.Server
	}
	return fmt.Errorf("%s is another cluster than the one%s that has joined as %s: %w. Name the context of that one, or another member. "+
		"If that one is no more, run mcctl leave %s --force%s, without a context of the member", member.config.Host, at, j.name, errOtherCluster, j.name, inNamespace(j.namespace))
}

// leadsTo makes sure that an access leads to a cluster, where it is not known which one has joined. Otherwise the error says what to do
// instead of a command.
func (j joined) leadsTo(target membership.Target, command, instead string) error {
	if j.access == nil || j.identity != "" {
		return nil
	}
	spec, leads := j.access.Spec, ""
	switch {
	case strings.TrimRight(spec.Server, "/") != target.Server:
		leads = "not to " + target.Server
	case !bytes.Equal(bytes.TrimSpace(spec.CABundle), bytes.TrimSpace(target.CABundle)):
		leads = "by another CA than that of your kubeconfig"
	default:
		return nil
	}
	return fmt.Errorf("%s in the hub leads to %s, %s, and nobody has noted there which cluster that is: %w. %s. "+
		"If your context leads to the very same cluster, note that, and run mcctl %s again: kubectl --namespace %s annotate %s.%s %s %s=%s",
		describe(j.access), spec.Server, leads, errOtherCluster, instead, command, j.access.Namespace, strings.ToLower(accessv1alpha1.KindClusterAccess),
		accessv1alpha1.GroupVersion().Group, j.access.Name, membership.IdentityAnnotation, target.Identity)
}

// leadsHere is leadsTo for the cluster to which a context of the caller leads.
func (j joined) leadsHere(member *reached, identity, command, instead string) error {
	if j.access == nil || j.identity != "" {
		return nil
	}
	target := membership.Target{Identity: identity}
	server, _, err := rest.DefaultServerUrlFor(member.config)
	if err == nil {
		target.Server = strings.TrimRight(server.String(), "/")
		target.CABundle, err = authority(member.config, memberSide)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, errOtherCluster)
	}
	return j.leadsTo(target, command, instead)
}

// presence is what there is in a member of what it takes to be one.
type presence struct {
	// made is by mcctl, in the order in which it is removed. Before it come the webhooks that programs of the fleet keep there.
	made []client.Object
	// webhooks says that there are such.
	webhooks bool
	// kept are the webhooks that others keep.
	kept []keptObject
	// others has the accounts of the controllers that others have made, and the bindings that give these rights.
	others []client.Object
	// marked says that mcctl has made some of it. Webhooks may be a namesake's.
	marked bool
	// of is what the hub knows of it.
	of joined
}

func (p presence) none() bool { return len(p.made)+len(p.others) == 0 }

// named reports whether something says that it is of the member: mcctl has made it, or printed it. Other members have accounts of the same name.
func (p presence) named(mark mark) bool {
	return p.marked || slices.ContainsFunc(p.others, func(obj client.Object) bool { return mark.printedOn(obj) })
}

// presence reads what there is in a member. Without a ClusterAccess, only what mcctl and the programs of the fleet have made is known.
func (r *reached) presence(ctx context.Context, hub *reached, mark mark, of joined) (presence, error) {
	access := of.access
	made, err := r.made(ctx, mark, membership.MemberKinds())
	of.traceless = access == nil && len(made) == 0
	p := presence{of: of, marked: len(made) > 0}
	if err != nil {
		return p, err
	}
	webhooks, kept, err := r.webhooks(ctx, hub, of)
	p.webhooks, p.kept, p.made = len(webhooks) > 0, kept, slices.Concat(webhooks, made)
	if err != nil || access == nil {
		return p, err
	}
	subjects := membership.Subjects(access)
	for _, subject := range subjects {
		if subject.Kind != rbacv1.ServiceAccountKind {
			continue
		}
		account := membership.AccountOf(subject)
		found, err := r.have(ctx, account)
		if err != nil {
			return p, err
		}
		if found && !mark.isOn(account) {
			p.others = append(p.others, account)
		}
	}
	bindings, err := r.bindings(ctx, subjects)
	for _, binding := range bindings {
		if !mark.isOn(binding) {
			p.others = append(p.others, binding)
		}
	}
	return p, err
}

// bindings returns those that give rights to one of the subjects.
func (r *reached) bindings(ctx context.Context, subjects []rbacv1.Subject) ([]client.Object, error) {
	of := func(these []rbacv1.Subject) bool {
		for _, one := range these {
			for _, subject := range subjects {
				if one.Kind == subject.Kind && one.Namespace == subject.Namespace && one.Name == subject.Name {
					return true
				}
			}
		}
		return false
	}
	cluster, namespaced := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{cluster, namespaced} {
		if err := r.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list the bindings in the %s (%s): %w", r.name, r.config.Host, err)
		}
	}
	var all []client.Object
	for i := range cluster.Items {
		if binding := &cluster.Items[i]; of(binding.Subjects) {
			binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
			all = append(all, binding)
		}
	}
	for i := range namespaced.Items {
		if binding := &namespaced.Items[i]; of(binding.Subjects) {
			binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
			all = append(all, binding)
		}
	}
	return all, nil
}

// others returns the minter's Secret, if others than mcctl have made it.
func (j joined) others(ctx context.Context, hub *reached, mark mark) ([]client.Object, error) {
	if j.access == nil || j.access.Spec.Minter == nil {
		return nil, nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(membership.SecretKind())
	secret.Namespace, secret.Name = j.access.Namespace, j.access.Spec.Minter.SecretName
	found, err := hub.have(ctx, secret)
	if err != nil || !found || mark.isOn(secret) {
		return nil, err
	}
	return []client.Object{secret}, nil
}
