package members

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// fieldOwner has the fields that are written.
const fieldOwner = client.FieldOwner("fleet-runtime-members")

// show makes the Member of a member as it is to be. known is nil if there is none.
func (m *mirror) show(ctx context.Context, object string, known *v1alpha1.Member, status fleet.Status) (after time.Duration, err error) {
	if known != nil && known.Spec.ClusterName != string(status.Name) {
		m.log.Info("Deleting a Member that has the name of another cluster's", "member", object)
		return 0, m.remove(ctx, known) // and creating it comes next
	}
	if wait := settles(known, status); wait > 0 {
		return wait, nil
	}
	if known == nil && status.State == fleet.Draining {
		return 0, nil // it had one, which another replica has deleted that was told first that the member is gone
	}
	status.Labels = bounded(status.Labels)
	written := m.shown.forged(known)
	if written != nil {
		known = known.DeepCopy()
		known.Status = *written
	}
	desired := desiredStatus(known, status, m.leaseNow())
	version, asks := m.version(object, known, status)
	desired.Version = version
	if written == nil && known != nil && same(&known.Status, desired) && labelled(known, status.Labels) {
		return asks, nil
	}
	wait, err := m.showAs(ctx, object, known, status, desired)
	if wait == 0 || asks > 0 && asks < wait { // the queue keeps one time for an object
		wait = asks
	}
	return wait, err
}

// showAs makes the Member of a member say what is desired, unless that was written already, or is not to be written yet.
func (m *mirror) showAs(
	ctx context.Context, object string, known *v1alpha1.Member, status fleet.Status, desired *v1alpha1.Status,
) (after time.Duration, err error) {
	if awaited, wait := m.shown.awaits(object); awaited != nil && sameButGeneration(awaited, desired) {
		return wait, nil
	}
	if wait := m.shown.mayWrite(object); wait > 0 {
		return wait, nil
	}
	err = m.write(ctx, object, known, status, desired)
	m.shown.wrote(object, err)
	return 0, err
}

// write sends what is not as it is to be.
func (m *mirror) write(ctx context.Context, object string, known *v1alpha1.Member, status fleet.Status, desired *v1alpha1.Status) error {
	if known == nil || !labelled(known, status.Labels) || !maps.Equal(known.Status.Labels, status.Labels) {
		applied := m.applied(object)
		if known != nil {
			applied.SetUID(known.UID) // else one that was deleted meanwhile would be made anew
		}
		applied.SetLabels(fit(status.Labels))
		applied.Object["spec"] = map[string]any{"clusterName": string(status.Name)}
		if err := m.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership); err != nil {
			return err
		}
		observes(desired, applied.GetGeneration())
	}
	m.shown.writing(object, desired)
	return m.writeStatus(ctx, object, desired)
}

// writeStatus makes a status what is desired. What others have put beside that is taken away: to apply does not.
func (m *mirror) writeStatus(ctx context.Context, object string, desired *v1alpha1.Status) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return err
	}
	applied := m.applied(object)
	applied.Object["status"] = content
	if err := m.writer.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	is := &v1alpha1.Member{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, is); err != nil || same(&is.Status, desired) {
		return err
	}
	before := is.DeepCopy()
	is.Status = *desired.DeepCopy()
	return m.writer.Status().Patch(ctx, is, client.MergeFrom(before), fieldOwner)
}

func (m *mirror) applied(object string) *unstructured.Unstructured {
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	applied.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	applied.SetNamespace(m.opts.Namespace)
	applied.SetName(object)
	return applied
}

// remove deletes a Member, but not if somebody has changed it meanwhile.
func (m *mirror) remove(ctx context.Context, known *v1alpha1.Member) error {
	err := m.writer.Delete(ctx, known.DeepCopy(), client.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch brings what is there now
	}
	return err
}

// disown deals with a Member that is no member's. It is deleted if it was one's. It stays, and says what it is, if people hold the
// member back, which may join again, or if it never was a member's.
func (m *mirror) disown(ctx context.Context, known *v1alpha1.Member) (after time.Duration, err error) {
	was := known.Status.State != "" && known.Status.State != v1alpha1.StateUnknown || m.shown.isGone(known.Name)
	if was && !m.shown.isGone(known.Name) {
		if wait := m.opts.ForgetAfter - m.shown.keptFor(); wait > 0 {
			return wait, nil
		}
	}
	if was && !isHeld(known) {
		return 0, m.remove(ctx, known)
	}
	if !was {
		is, first := m.shown.admit(known.Name)
		if first {
			m.log.Info("There are too many Members of clusters that are no members: not all of them are told so", "most", mostStrangers)
		}
		if !is {
			return 0, nil
		}
	}
	desired := disownedStatus(known, was)
	if same(&known.Status, desired) {
		return 0, nil
	}
	if awaited, wait := m.shown.awaits(known.Name); awaited != nil && same(awaited, desired) {
		return wait, nil
	}
	if wait := m.shown.mayWrite(known.Name); wait > 0 {
		return wait, nil
	}
	m.shown.writing(known.Name, desired)
	err = m.writeStatus(ctx, known.Name, desired)
	m.shown.wrote(known.Name, err)
	if apierrors.IsNotFound(err) {
		return 0, nil // it was deleted
	}
	return 0, err
}

// mostLabels is how much of the labels of a member its Member has, in bytes: objects may be no larger than a few times that.
const mostLabels = 1 << 16

// bounded returns the labels of a member, the first by their keys if they are too many.
func bounded(all map[string]string) map[string]string {
	size := 0
	for key, value := range all {
		size += len(key) + len(value)
	}
	if size <= mostLabels {
		return all
	}
	kept, size := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if size += len(key) + len(all[key]); size > mostLabels {
			break
		}
		kept[key] = all[key]
	}
	return kept
}

// fit returns the labels of a member that an object may have.
func fit(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			kept[key] = value
		}
	}
	return kept
}

// labelled reports whether a Member has the labels of a member.
func labelled(known *v1alpha1.Member, all map[string]string) bool {
	for key, value := range fit(all) {
		if has, ok := known.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// settleWithin is how long a member may be connected for the first time before its Member says so which says something already, as
// after a restart.
const settleWithin = 10 * time.Second

// settles returns how long to wait for a member that is about to be connected.
func settles(known *v1alpha1.Member, status fleet.Status) time.Duration {
	connecting := status.State == fleet.Pending || status.State == fleet.Connecting
	if known == nil || known.Status.State == "" || !connecting || status.Reason != "" {
		return 0
	}
	return settleWithin - time.Since(status.Since)
}

// at returns a time as the API has it.
func at(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}
