package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

// permitted makes sure that the caller may make all of a plan, so that nothing stays half made. It writes nothing.
func (p joinPlan) permitted(ctx context.Context, hub, member *reached) error {
	in, minter := p.member, membership.Minter(p.rights.Account)
	hubObjects := p.hub
	var more []rights.Right
	if p.minted {
		hubObjects = append(hubObjects, membership.MinterSecret(p.target, p.rights.Account, ""))
		more = append(more, rights.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: minter.Namespace, Name: minter.Name})
		if _, err := member.RESTMapper().RESTMapping(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy").GroupKind()); err == nil {
			in = append(in, membership.MinterPolicy(p.rights.Account, nil)...)
		}
	}
	if err := hub.mayApply(ctx, hubObjects, p.mark); err != nil {
		return err
	}
	if err := member.mayApply(ctx, in, p.mark, more...); err != nil {
		return err
	}
	if err := member.mayGrant(ctx, p.member, p.mark); err != nil {
		return err
	}
	if err := p.mayHaveName(ctx, hub, member); err != nil {
		return err
	}
	if err := member.unclaimed(ctx, in, p.mark); err != nil {
		return err
	}
	if err := member.takes(ctx, in, p.mark); err != nil {
		return err
	}
	return p.hubTakes(ctx, hub)
}

// mayHaveName makes sure that no other cluster has joined under the name, and that none is leaving.
func (p joinPlan) mayHaveName(ctx context.Context, hub, member *reached) error {
	joined, err := p.joined(ctx, hub)
	if err != nil {
		return err
	}
	if err := joined.stays(hub); err != nil {
		return err
	}
	if err := joined.isCluster(member, p.target.Identity); err != nil {
		return err
	}
	return joined.leadsTo(p.target, "join", "Join under another name")
}

// joined returns what has joined under the name. Without a ClusterAccess, as after a leave that was interrupted, the minter's Secret says which
// cluster that was.
func (p joinPlan) joined(ctx context.Context, hub *reached) (joined, error) {
	j, err := hub.joined(ctx, p.target.Name)
	if err != nil || j.access != nil {
		return j, err
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(membership.SecretKind())
	secret.Namespace, secret.Name = p.target.Namespace, membership.MinterSecretName(p.target.Name)
	found, err := hub.have(ctx, secret)
	if apierrors.IsForbidden(err) && !p.minted {
		return j, nil // it takes no right to Secrets to join without one
	}
	if found && p.mark.isOn(secret) {
		j.identity = secret.Annotations[membership.IdentityAnnotation]
	}
	return j, err
}

// bootstrapLabel is on the roles and bindings that API servers make themselves.
const bootstrapLabel = "kubernetes.io/bootstrapping"

// unclaimed makes sure that none of the objects was made for another member: they would go when that leaves. Namespaces may be shared.
// Nor may one be of Kubernetes itself.
func (r *reached) unclaimed(ctx context.Context, objects []client.Object, mark mark) error {
	for _, obj := range objects {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		if err := r.Get(ctx, client.ObjectKeyFromObject(obj), found); notfound.Ignore(err, obj.GetName()) != nil {
			return r.failed("read", obj, err)
		}
		if found.Labels[bootstrapLabel] != "" {
			return fmt.Errorf("%s in the %s (%s) is Kubernetes' own: nothing was written; give yours another name", describe(obj), r.name, r.config.Host)
		}
		if found.GroupVersionKind() != membership.NamespaceKind() && mark.forOther(found) {
			return fmt.Errorf("%s in the %s (%s) was made for the member %s/%s, of the fleet whose hub is the cluster %s: nothing was written; "+
				"let that one leave first, or name another account with --service-account, and give the roles in FILE other names%s", describe(obj), r.name,
				r.config.Host, labelValue(found.Labels[namespaceLabel]), labelValue(found.Labels[memberLabel]), labelValue(found.Labels[hubLabel]),
				mark.ofOtherHubs([]client.Object{found}))
		}
	}
	return nil
}

// mayApply makes sure that the caller may read objects, create and change those that are to be written, and do what more says. Unlike
// [rights.Lacking] it does not take the right to escalate for these.
func (r *reached) mayApply(ctx context.Context, objects []client.Object, mark mark, more ...rights.Right) error {
	var questions []question
	for _, right := range more {
		questions = append(questions, question{right, right})
	}
	for _, obj := range objects {
		verbs := []string{"get", "create", "patch"}
		if r.isLeftAlone(ctx, obj, mark) {
			verbs = verbs[:1]
		}
		for _, verb := range verbs {
			asked, err := r.questionOf(verb, obj)
			if err != nil {
				return err
			}
			questions = append(questions, asked)
		}
	}
	return r.mayDo(ctx, questions)
}

// isLeftAlone reports whether an object is there, and is not to be written. One that the caller may not read is asked for.
func (r *reached) isLeftAlone(ctx context.Context, obj client.Object, mark mark) bool {
	before := &metav1.PartialObjectMetadata{}
	before.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	return r.Get(ctx, client.ObjectKeyFromObject(obj), before) == nil && leftAlone(obj, before, mark)
}

// question is whether the caller has a right for all objects of a kind. Where it has not, exact is asked, which is for one.
type question struct{ all, exact rights.Right }

// questionOf is the question whether the caller may do something with an object.
func (r *reached) questionOf(verb string, obj client.Object) (question, error) {
	kind := obj.GetObjectKind().GroupVersionKind()
	mapping, err := r.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return question{}, r.failed(verb, obj, err)
	}
	if err != nil {
		return question{}, fmt.Errorf("ask the %s (%s) for its kinds: %w", r.name, r.config.Host, err)
	}
	all := rights.Right{Verb: verb, Group: kind.Group, Resource: mapping.Resource.Resource, Namespace: obj.GetNamespace()}
	exact := all
	exact.Name = obj.GetName()
	if kind == membership.NamespaceKind() { // which is in itself, for those that decide
		exact.Namespace = obj.GetName()
	}
	return question{all, exact}, nil
}

// mayDo makes sure that the caller has rights, and names those that it has not.
func (r *reached) mayDo(ctx context.Context, questions []question) error {
	answers := map[rights.Right]bool{}
	may := func(right rights.Right) (is bool, err error) {
		is, known := answers[right]
		if !known {
			is, err = r.may(ctx, right)
			answers[right] = is
		}
		return is, err
	}
	var refused []string
	for _, question := range questions {
		is, err := may(question.all)
		if !is && err == nil {
			is, err = may(question.exact)
		}
		if err != nil {
			return fmt.Errorf("ask the %s (%s) what you may do: %w", r.name, r.config.Host, err)
		}
		if text := question.all.String(); !is && !slices.Contains(refused, text) {
			refused = append(refused, text)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("you may not do this in the %s (%s), so nothing was written:\n  %s", r.name, r.config.Host, strings.Join(refused, "\n  "))
	}
	return nil
}

// may asks whether the caller has one right.
func (r *reached) may(ctx context.Context, right rights.Right) (bool, error) {
	resource, subresource, _ := strings.Cut(right.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: right.Verb, Group: right.Group, Resource: resource, Subresource: subresource, Name: right.Name, Namespace: right.Namespace,
		},
	}}
	err := r.Create(ctx, review)
	return review.Status.Allowed, err
}

// mayGrant makes sure that the caller has all that the roles among objects give, and those to which bindings refer, as the API server wants
// it of those that write them.
func (r *reached) mayGrant(ctx context.Context, objects []client.Object, mark mark) error {
	objects = r.withoutSame(ctx, objects, mark)
	want, err := membership.WrittenBy(objects)
	if err != nil {
		return err
	}
	referred, err := r.referred(ctx, membership.References(objects))
	if err != nil {
		return err
	}
	want = append(want, referred...)
	c, err := authorizationclient.NewForConfig(r.config)
	if err != nil {
		return err
	}
	lacking, err := rights.Lacking(ctx, c, want)
	if err != nil {
		return fmt.Errorf("ask the %s (%s): %w", r.name, r.config.Host, err)
	}
	if len(lacking) == 0 {
		return nil
	}
	lines := make([]string, len(lacking))
	for i, right := range lacking {
		lines[i] = right.String()
	}
	return fmt.Errorf("you cannot give rights in the %s (%s) that you do not have, so nothing was written:\n  %s", r.name, r.config.Host, strings.Join(lines, "\n  "))
}

// withoutSame leaves out the roles and bindings that are there as they are to be. To write them so takes none of what they give, and to bind such
// a role takes it where it is bound.
func (r *reached) withoutSame(ctx context.Context, objects []client.Object, mark mark) []client.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(obj client.Object) bool {
		if !givesRights(obj) {
			return false
		}
		result, err := r.apply(ctx, obj, mark, true)
		return err == nil && result == unchanged // what an error is about is told by the dry run of all
	})
}

// referred returns what roles of the cluster give that bindings refer to. Those that the caller may bind without having it are left out.
func (r *reached) referred(ctx context.Context, references []membership.Reference) ([]rights.Right, error) {
	var given []rights.Right
	for _, reference := range references {
		err := r.Get(ctx, client.ObjectKeyFromObject(reference.Role), reference.Role)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s is about a %s that is neither in the files nor in the %s (%s): nothing was written",
				describe(reference.Binding), describe(reference.Role), r.name, r.config.Host)
		}
		kind := reference.Role.GetObjectKind().GroupVersionKind()
		may, asked := r.may(ctx, rights.Right{
			Verb: "bind", Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s", Name: reference.Role.GetName(), Namespace: reference.In,
		})
		switch {
		case asked != nil:
			return nil, fmt.Errorf("ask the %s (%s) what you may do: %w", r.name, r.config.Host, asked)
		case may:
			continue
		case err != nil:
			return nil, r.failed("read", reference.Role, err)
		}
		given = append(given, rights.Of(reference.In, rulesOf(reference.Role)...)...)
	}
	return given, nil
}

func rulesOf(role client.Object) []rbacv1.PolicyRule {
	switch role := role.(type) {
	case *rbacv1.Role:
		return role.Rules
	case *rbacv1.ClusterRole:
		return role.Rules
	default:
		return nil
	}
}
