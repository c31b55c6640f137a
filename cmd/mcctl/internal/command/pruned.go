package command

import (
	"fmt"
	"time"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// prunes reports whether the controllers are to take back what they have put into the member.
func (l *leave) prunes(had leaving) bool {
	return l.dependents == pruneDependents || l.dependents == "" && had.access != nil && objects.LeavesWell(had.access)
}

// cameTooLate reports whether the controllers are to take something back, and the fleet has let go of the member already.
func (l *leave) cameTooLate(had leaving) bool {
	letGo := had.access == nil || had.access.DeletionTimestamp != nil && !objects.LeavesWell(had.access)
	return l.dependents == pruneDependents && letGo
}

// deletedBefore reports whether an access was deleted longer ago than a wait for it lasts. One of which it is not known is not.
func deletedBefore(access *accessv1alpha1.ClusterAccess, timeout time.Duration) bool {
	return access.DeletionTimestamp != nil && time.Since(access.DeletionTimestamp.Time) > timeout
}

// unsure is the error of a leave that cannot tell whether the fleet has given up. The rights stay, as does the Secret, which says which
// cluster has joined.
func (l *leave) unsure(hub *reached, had leaving, why string) error {
	return fmt.Errorf("it is not known whether the controllers have taken back what they had put into the member %s: in the hub (%s) %s. "+
		"If the fleet gave up, the log of its manager has the problem LeftUndone. The rights in the member stay. Look there for what is left, "+
		"and run mcctl leave %s --dependents=keep%s then, which removes them", had.name, hub.config.Host, why, had.name, inNamespace(had.namespace))
}

// unreleased is the error of a leave for which the controllers have not let go of the member.
func (l *leave) unreleased(had leaving, prunes bool) error {
	again, on := "again", ""
	name, namespace := had.shownAs()
	if prunes {
		again, on = had.name+" --dependents=prune"+inNamespace(had.namespace), " as long as the fleet does, and says if it cannot tell whether that gave up"
	}
	return fmt.Errorf("the controllers have not let go of the member after %s: mcctl describe %s --live%s tells what is left. Run mcctl leave %s, "+
		"which waits on%s; with --dependents=keep it leaves at once, and what they have put there stays", l.timeout, name, inNamespace(namespace), again, on)
}
