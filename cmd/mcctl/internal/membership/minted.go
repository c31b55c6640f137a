package membership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// MinterSeconds is the lifetime that a minter's own token is asked for, in seconds: seven days, so that a hub which was down for
// some days needs nobody to repair it.
const MinterSeconds = 7 * 24 * 60 * 60

// workerSeconds is the longest lifetime that a ClusterAccess may ask for, in seconds.
const workerSeconds = 24 * 60 * 60

// minterSuffix ends the name of a minter.
const minterSuffix = "-minter"

// Minter returns the key of the account that makes the tokens of an account, and may do nothing else.
func Minter(account types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: account.Namespace, Name: account.Name + minterSuffix}
}

// WorkerOf returns the name of the account whose tokens a minter of that name makes.
func WorkerOf(minter string) string { return strings.TrimSuffix(minter, minterSuffix) }

// MinterObjects returns what the minter of an account consists of in the member, in the order in which it can be made. It is in the
// namespace of the account, which must be there.
func MinterObjects(account types.NamespacedName) []client.Object {
	minter := Minter(account)
	return []client.Object{
		newAccount(minter),
		newRole(minter,
			rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
				ResourceNames: []string{account.Name, minter.Name}, Verbs: []string{"create"},
			},
			rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
				ResourceNames: []string{account.Name, minter.Name}, Verbs: []string{"get"},
			},
		),
		newRoleBinding(minter, minter.Name, rbacv1.Subject{
			Kind: rbacv1.ServiceAccountKind, Namespace: minter.Namespace, Name: minter.Name,
		}),
	}
}

const (
	kindPolicy = "ValidatingAdmissionPolicy"
	// policyPrefix begins the name of each policy about a minter.
	policyPrefix = "fleet-runtime."
)

// policyName is that of the policy about a minter, which has no namespace.
func policyName(minter types.NamespacedName) string {
	return policyPrefix + minter.Namespace + "." + minter.Name
}

// BoundBy returns the minter that a policy is about, by its name. No name of a namespace has a dot.
func BoundBy(policy client.Object) (minter types.NamespacedName, is bool) {
	name, is := strings.CutPrefix(policy.GetName(), policyPrefix)
	if !is || policy.GetObjectKind().GroupVersionKind().Kind != kindPolicy {
		return minter, false
	}
	minter.Namespace, minter.Name, is = strings.Cut(name, ".")
	return minter, is
}

// LeavesRoom returns an error if the name of an account is too long for those of its minter and of the policy about that.
func LeavesRoom(account types.NamespacedName) error {
	if over := len(policyName(Minter(account))) - validation.DNS1123SubdomainMaxLength; over > 0 {
		return fmt.Errorf("the name of the account %s/%.32s... is too long by %d characters: the policy about its minter is called fleet-runtime.NAMESPACE.NAME%s",
			account.Namespace, account.Name, over, minterSuffix)
	}
	return nil
}

// MinterPolicy returns the policy that bounds what a minter may ask for: no lifetime beyond its own, and no audiences but those of the
// member's API server. Whoever steals its token gets nothing that outlasts its removal by more than that. Without audiences, which only the
// member knows, it says nothing of them.
func MinterPolicy(account types.NamespacedName, audiences []string) []client.Object {
	minter := Minter(account)
	name := policyName(minter)
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: kind}
	}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   typed(kindPolicy),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: new(admissionv1.Fail),
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"serviceaccounts/token"}},
					},
				}}},
				MatchConditions: []admissionv1.MatchCondition{{
					Name:       "minter",
					Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", minter.Namespace, minter.Name),
				}},
				Validations: minterValidations(minter.Name, audiences),
			},
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   typed("ValidatingAdmissionPolicyBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

func minterValidations(minter string, audiences []string) []admissionv1.Validation {
	all := []admissionv1.Validation{
		{
			Expression: fmt.Sprintf("!has(object.spec.expirationSeconds) || object.spec.expirationSeconds <= (request.name == '%s' ? %d : %d)",
				minter, MinterSeconds, workerSeconds),
			Message: "the minter of a fleet may not ask for tokens that last so long",
		},
		{
			Expression: "!has(object.spec.boundObjectRef) || object.spec.boundObjectRef == null",
			Message:    "the minter of a fleet binds tokens to nothing",
		},
	}
	if len(audiences) == 0 {
		return all
	}
	return slices.Insert(all, 1, admissionv1.Validation{
		// The API server has put its own audiences in by now, where none is asked for.
		Expression: fmt.Sprintf("!has(object.spec.audiences) || object.spec.audiences.all(a, a in %s)", celList(audiences)),
		Message:    "the minter of a fleet makes tokens for this cluster's API server alone",
	})
}

// celList writes strings as a list of CEL, whose literals take the escapes of JSON.
func celList(texts []string) string {
	quoted, err := json.Marshal(texts)
	if err != nil {
		return "[]"
	}
	return string(quoted)
}

// IdentityAnnotation says which cluster has joined, on its ClusterAccess and on its minter's Secret.
const IdentityAnnotation = "access.fleet-runtime.dev/identity"

// Target is how the hub reaches a member.
type Target struct {
	// Name is that of the member, and Namespace that of its objects in the hub.
	Namespace, Name         string
	Server                  string
	CABundle                []byte
	TLSServerName, ProxyURL string
	Labels                  map[string]string
	// Identity tells which cluster it is. It is empty where no server is asked.
	Identity string
}

// annotations are those of what is made in the hub.
func (t Target) annotations() map[string]string {
	if t.Identity == "" {
		return nil
	}
	return map[string]string{IdentityAnnotation: t.Identity}
}

// MinterSecretName is the name of the Secret of a member's minter.
func MinterSecretName(member string) string { return member + "-minter" }

// MinterSecret returns the Secret with a minter's token, for the hub.
func MinterSecret(t Target, account types.NamespacedName, token string) *corev1.Secret {
	minter := Minter(account)
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: MinterSecretName(t.Name), Annotations: t.annotations()},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			accessv1alpha1.MinterToken:          []byte(token),
			accessv1alpha1.MinterServer:         []byte(t.Server),
			accessv1alpha1.MinterCA:             t.CABundle,
			accessv1alpha1.MinterTLSServerName:  []byte(t.TLSServerName),
			accessv1alpha1.MinterNamespace:      []byte(minter.Namespace),
			accessv1alpha1.MinterServiceAccount: []byte(minter.Name),
		},
	}
}

// Minted returns the ClusterAccess of a member whose tokens a minter makes.
func Minted(t Target, account types.NamespacedName) *accessv1alpha1.ClusterAccess {
	a := newAccess(t)
	a.Spec.Minter = &accessv1alpha1.Minter{
		SecretName: MinterSecretName(t.Name), ServiceAccountNamespace: account.Namespace, ServiceAccountName: account.Name,
	}
	return a
}

// Federated returns the ClusterAccess of a member that accepts tokens of an account of the hub.
func Federated(t Target, account string) *accessv1alpha1.ClusterAccess {
	a := newAccess(t)
	a.Spec.Federated = &accessv1alpha1.Federated{ServiceAccountName: account}
	return a
}

func newAccess(t Target) *accessv1alpha1.ClusterAccess {
	return &accessv1alpha1.ClusterAccess{
		TypeMeta:   metav1.TypeMeta{APIVersion: accessv1alpha1.GroupVersion().String(), Kind: accessv1alpha1.KindClusterAccess},
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, Labels: t.Labels, Annotations: t.annotations()},
		Spec: accessv1alpha1.ClusterAccessSpec{
			Server: t.Server, CABundle: t.CABundle, TLSServerName: t.TLSServerName, ProxyURL: t.ProxyURL,
		},
	}
}

// Subjects are those as which the controllers come to the member of an access, and its minter.
func Subjects(access *accessv1alpha1.ClusterAccess) []rbacv1.Subject {
	var all []rbacv1.Subject
	if federated := access.Spec.Federated; federated != nil {
		all = append(all, FederatedSubject(access.Namespace, federated.ServiceAccountName))
	}
	if minter := access.Spec.Minter; minter != nil {
		worker := types.NamespacedName{Namespace: minter.ServiceAccountNamespace, Name: minter.ServiceAccountName}
		for _, key := range []types.NamespacedName{worker, Minter(worker)} {
			all = append(all, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: key.Namespace, Name: key.Name})
		}
	}
	return all
}

// AccountOf returns the service account that a subject is.
func AccountOf(subject rbacv1.Subject) *corev1.ServiceAccount {
	return newAccount(types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name})
}
