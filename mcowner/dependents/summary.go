package dependents

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Summary is what came of all clusters, for the status of an owner.
type Summary struct {
	// Targets are the clusters that are to have dependents. Each is Done, Suspended, Pending, Unreachable or Failed.
	Targets, Done, Pending, Unreachable, Failed int
	// Suspended are those in which nothing is in the way, and something is not as desired since it is [Suspended].
	Suspended int
	// NotReady are those of Done and Suspended that have something which is not ready, see Result.Unready.
	NotReady int
	// Halted is why no further cluster is changed, as the first says that is Pending for that: it wraps [ErrHalted]. Nil if none is.
	Halted error
	// Stuck are those that are so for too long, see Result.Stuck, and FirstStuck is the first of them, by name.
	Stuck      int
	FirstStuck mcreconcile.ClusterName
	// Leaving are clusters that are no target, from which dependents are still to be removed. What keeps them counts for
	// FirstError, and for conditions, alone.
	Leaving int
	// FirstError is that of the first cluster, by name, that has failed; else of the first that is unreachable. It is nil if
	// nothing is in the way.
	FirstError error
	// FirstCluster has it.
	FirstCluster mcreconcile.ClusterName
}

// Summarize counts results.
func Summarize(results []Result) Summary {
	var s Summary
	unreachable := false // FirstError is of a cluster that is
	for _, r := range results {
		// What one that leaves waits for says itself whether something is wrong.
		pending := isUnderway(r.Err) || errors.Is(r.Err, ErrLeaving) && !errors.Is(r.Err, errUnsettled)
		away := remote.IsAway(r.Err)
		switch {
		case !r.Targeted:
			s.Leaving++
		case r.Err == nil:
			s.Targets++
			if r.isSuspended() {
				s.Suspended++
			} else {
				s.Done++
			}
			if r.Unready != nil {
				s.NotReady++
			}
		case pending:
			s.Targets, s.Pending = s.Targets+1, s.Pending+1
			if s.Halted == nil && errors.Is(r.Err, ErrHalted) {
				s.Halted = r.Err
			}
		case away:
			s.Targets, s.Unreachable = s.Targets+1, s.Unreachable+1
		default:
			s.Targets, s.Failed = s.Targets+1, s.Failed+1
		}
		if r.Stuck {
			if s.Stuck++; s.Stuck == 1 {
				s.FirstStuck = r.Cluster
			}
		}
		if r.Err != nil && !pending && (s.FirstError == nil || unreachable && !away) {
			s.FirstError, s.FirstCluster, unreachable = r.Err, r.Cluster, away
		}
	}
	return s
}

// Types of conditions that [Summary.SetConditions] sets, and their reasons.
const (
	ConditionSynced      = "Synced"      // all clusters are as desired
	ConditionProgressing = "Progressing" // some are not yet, and nothing is known to be in the way

	ReasonDone        = "Done"
	ReasonPending     = "Pending"
	ReasonSuspended   = "Suspended"
	ReasonUnreachable = "Unreachable"
	ReasonFailed      = "Failed"

	ReasonNotReady         = "NotReady"                 // all is as desired, and something of it is not ready
	ReasonHalted           = "Halted"                   // clusters have failed, see Rollout.HaltAfter
	ReasonDeadlineExceeded = "ProgressDeadlineExceeded" // a cluster is stuck, see Rollout.ProgressDeadline
)

// longestMessage bounds messages of conditions, in bytes.
const longestMessage = 1024

// SetConditions sets [ConditionSynced] and [ConditionProgressing] among the conditions of an owner of a generation.
func (s Summary) SetConditions(conditions *[]metav1.Condition, generation int64) {
	synced := metav1.Condition{Type: ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: generation}
	progressing := metav1.Condition{Type: ConditionProgressing, Status: metav1.ConditionFalse, ObservedGeneration: generation}
	switch {
	case s.Failed > 0 || s.FirstError != nil && !remote.IsAway(s.FirstError):
		synced.Reason = ReasonFailed
	case s.Unreachable > 0 || s.FirstError != nil:
		synced.Reason = ReasonUnreachable
	case s.Pending > 0 || s.Leaving > 0:
		synced.Reason = ReasonPending
	case s.Suspended > 0:
		synced.Reason = ReasonSuspended
	default:
		synced.Reason, synced.Status = ReasonDone, metav1.ConditionTrue
	}
	progressing.Reason = synced.Reason
	if s.Pending > 0 || s.Leaving > 0 && s.FirstError == nil {
		progressing.Reason, progressing.Status = ReasonPending, metav1.ConditionTrue
	}
	switch {
	case s.Halted != nil:
		progressing.Reason, progressing.Status = ReasonHalted, metav1.ConditionFalse
	case s.Stuck > 0:
		progressing.Reason, progressing.Status = ReasonDeadlineExceeded, metav1.ConditionFalse
	case s.NotReady > 0 && progressing.Status == metav1.ConditionFalse:
		progressing.Reason, progressing.Status = ReasonNotReady, metav1.ConditionTrue
	}
	synced.Message = oneline.Text(s.String(), longestMessage)
	progressing.Message = fmt.Sprintf("%d clusters are pending, %d are being left", s.Pending, s.Leaving)
	if s.NotReady > 0 {
		progressing.Message += fmt.Sprintf(", %d are not ready", s.NotReady)
	}
	if s.Halted != nil {
		progressing.Message += fmt.Sprintf("; %v", s.Halted)
	}
	if s.Stuck > 0 {
		progressing.Message += fmt.Sprintf("; stuck is %s, and %d others", remote.ClusterText(s.FirstStuck), s.Stuck-1)
	}
	progressing.Message = oneline.Text(progressing.Message, longestMessage)
	meta.SetStatusCondition(conditions, synced)
	meta.SetStatusCondition(conditions, progressing)
}

// String says how many clusters are as desired, and what is in the way first.
func (s Summary) String() string {
	text := fmt.Sprintf("%d of %d clusters are as desired", s.Done, s.Targets)
	if s.Suspended > 0 {
		text += fmt.Sprintf(", %d are suspended", s.Suspended)
	}
	if s.FirstError != nil {
		text += fmt.Sprintf("; %s: %v", remote.ClusterText(s.FirstCluster), s.FirstError)
	}
	return text
}
