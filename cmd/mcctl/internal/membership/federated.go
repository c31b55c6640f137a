package membership

import rbacv1 "k8s.io/api/rbac/v1"

// UserPrefix is before the names of the hub's accounts in a member that accepts their tokens, so that none is taken for an account of
// the member.
const UserPrefix = "hub:"

// FederatedSubject is the user as which an account of the hub comes to a member that accepts its tokens.
func FederatedSubject(namespace, account string) rbacv1.Subject {
	return rbacv1.Subject{
		APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: UserPrefix + "system:serviceaccount:" + namespace + ":" + account,
	}
}
