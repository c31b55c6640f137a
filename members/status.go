package members

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// As much as the kind allows, in bytes.
const (
	maxWord, maxMessage, maxIdentity, maxReplica = 64, 1000, 1000, 250
	mostKinds                                    = 100
)

// desiredStatus returns what a Member is to say of a member. known is what it says, nil if there is none.
func desiredStatus(known *v1alpha1.Member, s fleet.Status, lease *v1alpha1.Lease) *v1alpha1.Status {
	status := &v1alpha1.Status{
		State: string(s.State), Since: at(s.Since), Reason: word(s.Reason), Message: oneline.Text(s.Message, maxMessage),
		Identity: oneline.Text(s.Identity, maxIdentity), Server: s.Server, Labels: maps.Clone(s.Labels),
		Replica: oneline.Text(s.Owner, maxReplica), Epoch: s.Epoch, Expires: at(s.Expires), Lease: lease,
		Paused: s.Paused, Drained: s.State == fleet.Drained, Leaving: s.Leaving,
	}
	for _, other := range s.Duplicates {
		status.Duplicates = append(status.Duplicates, string(other))
	}
	for _, kind := range s.NotSynced[:min(len(s.NotSynced), mostKinds)] {
		status.NotSynced = append(status.NotSynced, v1alpha1.NotSynced{
			Kind: kind.Name(), Reason: word(kind.Reason), Message: oneline.Text(kind.Message, maxMessage), Since: at(kind.Since),
		})
	}
	if known != nil {
		status.ObservedGeneration = known.Generation
		if before := known.Status.Since; known.Status.State == status.State && !before.IsZero() && before.Before(&status.Since) {
			status.Since = known.Status.Since // another replica, or the program before, has seen it begin
		}
	}
	status.Conditions = conditions(known, ready(status), metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
	})
	return status
}

// disownedStatus returns what a Member is to say that is no member's, and was one's or never.
func disownedStatus(known *v1alpha1.Member, was bool) *v1alpha1.Status {
	status := &v1alpha1.Status{
		State: v1alpha1.StateUnknown, Reason: v1alpha1.ReasonUnknownCluster, ObservedGeneration: known.Generation,
		Message: fmt.Sprintf("the fleet has no member %q", known.Spec.ClusterName),
	}
	switch {
	case was:
		status.State = v1alpha1.StateGone
		status.Message += "; this Member stays since its spec holds the member back"
	case !bearsItsName(known):
		status.Reason = v1alpha1.ReasonWrongName
		status.Message = fmt.Sprintf("the Member of cluster %q is called %s", known.Spec.ClusterName, v1alpha1.ObjectName(known.Spec.ClusterName))
	}
	status.Message = oneline.Text(status.Message, maxMessage)
	status.Conditions = conditions(known,
		metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: status.Reason, Message: status.Message},
		metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: status.Reason, Message: status.Message})
	return status
}

// observes notes which spec the status follows.
func observes(s *v1alpha1.Status, generation int64) {
	s.ObservedGeneration = generation
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = generation
	}
}

// ready returns the condition Ready.
func ready(s *v1alpha1.Status) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: cmp.Or(s.Reason, s.State), Message: s.Message,
	}
	if s.State == string(fleet.Ready) && !s.Paused {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// conditions returns conditions with the times of those that are as before.
func conditions(known *v1alpha1.Member, all ...metav1.Condition) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range all {
		if known != nil {
			c.ObservedGeneration = known.Generation
			if before := meta.FindStatusCondition(known.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
		meta.SetStatusCondition(&list, c)
	}
	return list
}

// same reports whether nothing has changed but texts of messages, and times: they are others at each attempt to connect. What people say of a
// member is a message that counts.
func same(a, b *v1alpha1.Status) bool {
	return equality.Semantic.DeepEqual(withoutMessages(a), withoutMessages(b))
}

// sameButGeneration is same where it is not known yet which spec a status follows that was written.
func sameButGeneration(written, desired *v1alpha1.Status) bool {
	if desired.ObservedGeneration == 0 {
		desired = withoutMessages(desired)
		observes(desired, written.ObservedGeneration)
	}
	return same(written, desired)
}

// asStored returns a status as the API server gives it back: times are of whole seconds there.
func asStored(s *v1alpha1.Status) *v1alpha1.Status {
	stored := &v1alpha1.Status{}
	text, err := json.Marshal(s)
	if err != nil || json.Unmarshal(text, stored) != nil {
		return nil
	}
	return stored
}

func withoutMessages(s *v1alpha1.Status) *v1alpha1.Status {
	c := &v1alpha1.Status{}
	s.DeepCopyInto(c)
	if s.Reason != fleet.ReasonPaused && !s.Drained {
		c.Message = some(c.Message)
	}
	for i := range c.NotSynced {
		c.NotSynced[i].Message = some(c.NotSynced[i].Message)
	}
	for i := range c.Conditions {
		c.Conditions[i].Message, c.Conditions[i].LastTransitionTime = some(c.Conditions[i].Message), metav1.Time{}
	}
	return c
}

// some stands for any text but none.
func some(text string) string {
	if text == "" {
		return ""
	}
	return "some"
}

var notInWords = regexp.MustCompile("[^A-Za-z0-9_]")

// word returns a reason as the kind allows it, which may be a provider's: it begins with a letter.
func word(reason string) string {
	reason = strings.TrimLeft(notInWords.ReplaceAllString(reason, ""), "0123456789_")
	return reason[:min(len(reason), maxWord)]
}
