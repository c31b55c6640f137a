package members

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// specs are the Members, as the one watch of this replica brings them. The manager fills the cache before the fleet runs, so that no
// member is engaged of which it is not known whether people hold it back.
type specs struct {
	cache.Cache

	namespace string
}

// GetCache tells the manager to start it with its own cache.
func (s specs) GetCache() cache.Cache { return s.Cache }

// Start implements manager.Runnable: it watches the Members until ctx ends. The manager waits for all that is asked for here.
func (s specs) Start(ctx context.Context) error {
	if _, err := s.GetInformer(ctx, &v1alpha1.Member{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return s.Cache.Start(ctx)
}

// served returns an error that says what to do if the local cluster does not serve the kind.
func served(mapper meta.RESTMapper) error {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupVersion().Group, Kind: v1alpha1.Kind}, v1alpha1.GroupVersion().Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: install the CRD that v1alpha1.CRD returns", err)
	}
	return err
}

// follow tells of each Member that there is, and of each that is another, until ctx ends. before is nil for one that is new, and now for one that
// was deleted.
func (s specs) follow(ctx context.Context, tell func(before, now *v1alpha1.Member)) error {
	informer, err := s.GetInformer(ctx, &v1alpha1.Member{})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(nil, memberOf(obj)) },
		UpdateFunc: func(before, now any) { tell(memberOf(before), memberOf(now)) },
		DeleteFunc: func(obj any) { tell(memberOf(obj), nil) },
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) }) // which fails if all have ended
	return nil
}

// slim leaves out of a Member what is not looked at, which strangers may make as large as objects may be.
func slim(obj any) (any, error) {
	if m, is := obj.(*v1alpha1.Member); is {
		m.ManagedFields, m.Annotations, m.OwnerReferences, m.Finalizers = nil, nil, nil, nil
	}
	return obj, nil
}

// memberOf returns the Member of an event, nil for what is none.
func memberOf(obj any) *v1alpha1.Member {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	m, _ := obj.(*v1alpha1.Member)
	return m
}

// get returns a Member, nil if there is none. It must not be changed.
func (s specs) get(ctx context.Context, object string) (*v1alpha1.Member, error) {
	m := &v1alpha1.Member{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: object}, m)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	return m, err
}

// hold returns how people hold a member back.
func (s specs) hold(cluster fleet.ClusterName) fleet.Hold {
	m, err := s.get(context.Background(), v1alpha1.ObjectName(string(cluster)))
	if err != nil || m == nil || m.Spec.ClusterName != string(cluster) {
		return fleet.Hold{}
	}
	return holdOf(m)
}

func holdOf(m *v1alpha1.Member) fleet.Hold {
	return fleet.Hold{Paused: m.Spec.Paused, Drained: m.Spec.Drained, Leave: m.Spec.Leave, Reason: m.Spec.Reason}
}

// isHeld reports whether people say anything of a member.
func isHeld(m *v1alpha1.Member) bool { return m.Spec.Paused || m.Spec.Drained || m.Spec.Leave }

// bearsItsName reports whether a Member is called as that of its cluster is.
func bearsItsName(m *v1alpha1.Member) bool { return m.Name == v1alpha1.ObjectName(m.Spec.ClusterName) }
