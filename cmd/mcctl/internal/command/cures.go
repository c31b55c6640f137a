package command

import (
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// unpause is what to do about a ClusterAccess that is paused.
const unpause = "set spec.paused of the ClusterAccess to false"

// cureOf says what to do about a reason, which may be one of package access or of package fleet. a is nil for a member without a
// ClusterAccess.
func cureOf(reason string, a *accessv1alpha1.ClusterAccess) string {
	cure := ""
	if a != nil {
		cure = orElse(cureOfTokens(reason, a), cureOfAccess(reason, a))
	}
	return orElse(orElse(cure, cureOfReason(reason)), "see docs/access.md and docs/operating.md for the reason "+reason)
}

// giveRights says how the account of the controllers gets rights: by a command, unless its roles are applied by a tool, over which mcctl does not write.
func giveRights(a *accessv1alpha1.ClusterAccess, command string) string {
	if a == nil || a.Annotations[sideAnnotation] == "" {
		return command
	}
	return "let mcctl join " + called(a) + " print the roles with what is missing, with --dry-run=client and the flags of before, and apply them by the tool that has applied the ClusterAccess"
}

// called is a member for join and federate, which take no name with a namespace.
func called(a *accessv1alpha1.ClusterAccess) string { return a.Name + inNamespace(a.Namespace) }

// inNamespace ends a command that is told to people. Without it, a command for a member may go to one of the same name in another namespace.
func inNamespace(namespace string) string { return " --namespace " + namespace }

// cureOfTokens says what to do where no tokens can be made for a ClusterAccess.
func cureOfTokens(reason string, a *accessv1alpha1.ClusterAccess) string {
	join := "mcctl join " + called(a)
	again := "run " + join + " again with the same flags: it makes what is missing"
	switch reason {
	case accessv1alpha1.ReasonServiceAccountNotFound:
		if f := a.Spec.Federated; f != nil {
			return "create the account in the hub: kubectl create serviceaccount " + f.ServiceAccountName + " --namespace " + a.Namespace
		}
		return again
	case accessv1alpha1.ReasonNotAllowed:
		if f := a.Spec.Federated; f != nil {
			return "in the hub, give the manager the right to create serviceaccounts/token of " + a.Namespace + "/" + f.ServiceAccountName
		}
		return "give the right that is named: in the hub the manager gets and updates the minter's Secret; in the member " + join + " gives it again"
	case accessv1alpha1.ReasonSecretNotFound, accessv1alpha1.ReasonSecretInvalid:
		return again
	case accessv1alpha1.ReasonMismatch:
		return "undo what was edited in the ClusterAccess or in the minter's Secret, or run " + join + " again with what is right now"
	case accessv1alpha1.ReasonMinterExpired:
		return "run " + join + " again with the same flags: it makes the minter a new token"
	case accessv1alpha1.ReasonNotRenewed:
		return "mend what the message names before the token expires: in the hub the manager gets and updates the minter's Secret; in the member " + join +
			" gives the minter its rights again"
	case accessv1alpha1.ReasonHub:
		return "see that the hub's API server answers the manager; it heals by itself then"
	default:
		return ""
	}
}

// cureOfAccess says what to do where the cluster of a ClusterAccess does not take the tokens, or cannot be reached.
func cureOfAccess(reason string, a *accessv1alpha1.ClusterAccess) string {
	switch reason {
	case accessv1alpha1.ReasonPaused:
		if !a.Spec.Paused { // the member is
			return ""
		}
		return unpause
	case accessv1alpha1.ReasonEqualIssuers:
		return "give the hub or the member another --service-account-issuer, or run mcctl join " + called(a) + " again with --minted"
	case accessv1alpha1.ReasonTokenRefused:
		if a.Spec.Federated != nil {
			return "run mcctl federate " + called(a) + ", and give the member's API server what it prints"
		}
		return "make sure that " + a.Spec.Server + " is the cluster that has joined, and no other"
	case accessv1alpha1.ReasonAnotherUser:
		return "give the address of the API server of " + a.Spec.Server + " itself: what answers there takes tokens for those of another account"
	case accessv1alpha1.ReasonLoopback:
		return "run mcctl join " + called(a) + " again, with the address for the hub in --advertise-server"
	case accessv1alpha1.ReasonInvalid:
		return "correct the field of the ClusterAccess that the message names"
	case fleet.ReasonCertificate:
		return "correct spec.caBundle or spec.tlsServerName of the ClusterAccess: " + a.Spec.Server + " shows another certificate, or is another server"
	case fleet.ReasonForbidden, fleet.ReasonNotSynced:
		return "give the account of the controllers the rights that are missing: mcctl check tells which. " + giveRights(a, "mcctl rbac "+called(a)+" gives them")
	case fleet.ReasonRefused, fleet.ReasonTimeout, fleet.ReasonDNS, fleet.ReasonServerError:
		return "see that the member's API server runs, and that the hub's Pods reach it at " + a.Spec.Server
	default:
		return ""
	}
}

// cureOfReason says what to do about a reason of package fleet or of a Member.
func cureOfReason(reason string) string {
	switch reason {
	case fleet.ReasonRefused, fleet.ReasonTimeout, fleet.ReasonDNS, fleet.ReasonServerError:
		return "see that the member's API server runs, and that the hub's Pods reach it"
	case fleet.ReasonUnauthorized:
		return "renew the credentials where they come from; for a ClusterAccess run mcctl join again"
	case fleet.ReasonCertificate:
		return "correct the CA: the server shows another certificate, or is another server"
	case fleet.ReasonRedirected:
		return "give the address of the API server itself: what answers there redirects elsewhere"
	case fleet.ReasonAnotherCluster:
		return "make sure that the address is that of the cluster which is meant"
	case fleet.ReasonForbidden, fleet.ReasonNotSynced:
		return "give the account of the controllers the rights that are missing: mcctl check tells which, mcctl rbac gives them"
	case fleet.ReasonNoKind:
		return "install the CRD in the member, or do without the kind there"
	case fleet.ReasonInvalid:
		return "correct what describes the member: the message says what is wrong with it"
	case fleet.ReasonDuplicate:
		return "let all but one of those leave that are the same cluster"
	case fleet.ReasonTooManyMembers:
		return "let others leave, or raise fleet.Options.MaxMembers of the manager"
	case fleet.ReasonError:
		return "do as the message says; the log of the manager has more"
	case membersv1alpha1.ReasonUnknownCluster, membersv1alpha1.ReasonWrongName:
		return "delete the Member, or let the provider of the fleet discover the cluster"
	default:
		return cureOfChange(reason)
	}
}

// cureOfChange says what to do about a reason that passes, or that people have given.
func cureOfChange(reason string) string {
	switch reason {
	case fleet.ReasonUnproved:
		return "see that the hub's API server answers the replica; it heals by itself then"
	case fleet.ReasonHandedOver:
		return "wait until the other replica works on it; mcctl shards shows which ones run"
	case fleet.ReasonPaused, fleet.ReasonDrained:
		return "let it run again where it was held back: by a program, since the Member does not say so"
	case fleet.ReasonLeaving:
		return "wait until the controllers have let go of it; mcctl describe --live shows what is left"
	case fleet.ReasonLeftUndone:
		return "remove by hand what the message says was left undone in the former member"
	case fleet.ReasonTooManyProblems:
		return "mend the problems that the manager shows at /debug/fleet"
	default:
		return ""
	}
}

// cureOfState says what to do about a member that is not Ready where no reason says why.
func cureOfState(state string) string {
	switch state {
	case "":
		return "see that a manager runs which writes Members, and what it logs of this one"
	case string(fleet.Pending), string(fleet.Connecting):
		return "wait for some seconds; if it stays so, the log of the manager says what the attempts run into"
	case string(fleet.Draining):
		return "wait until what runs has ended; mcctl describe --live shows what that is"
	case string(fleet.Drained):
		return "let it run again where it was held back: by a program, since the Member does not say so"
	case string(fleet.Suspended):
		return cureOfChange(fleet.ReasonUnproved)
	case string(fleet.NotOwned):
		return "see mcctl shards: whether replicas run, and one of the pool that the member asks for"
	case string(fleet.Unreachable):
		return cureOfReason(fleet.ReasonRefused)
	case membersv1alpha1.StateGone, membersv1alpha1.StateUnknown:
		return cureOfReason(membersv1alpha1.ReasonUnknownCluster)
	default:
		return "look at the log of the manager that works on it"
	}
}
