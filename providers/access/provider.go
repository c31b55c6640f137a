// Package access is the provider of the clusters that objects of the kind v1alpha1.ClusterAccess describe: those that are reached
// by tokens which do not last, and are stored nowhere.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/served"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Provider is a [fleet.Provider] of the clusters that ClusterAccesses describe. The labels of an access are the labels of its
// member. One that is paused is no member. Use it by a pointer: it is also a [fleet.Refresher]. Its fields must not be changed
// after Run was called, which is once.
//
// The token of a member is made when the member is first connected, so one that another replica works on costs nothing. It is
// renewed in place: no watch ends, and nothing is listed again. The status of the member says when it expires. While no token can
// be made, the reason of the member is one of package v1alpha1, such as v1alpha1.ReasonServiceAccountNotFound.
//
// The manager needs the rights to get, list and watch ClusterAccesses, to create serviceaccounts/token for the accounts of those
// that are federated, to get the Secrets of those with a minter, and to create and patch events (of events.k8s.io). Its scheme
// need not know the kind.
type Provider struct {
	// Namespace is the one namespace of the ClusterAccesses.
	// Default: that of the manager, which is in the environment variable POD_NAMESPACE, or else known to every pod with a
	// service account.
	Namespace string

	// AllNamespaces takes the ClusterAccesses of all namespaces. Members are then called "namespace/name".
	AllNamespaces bool

	// Selector says which ClusterAccesses are members.
	// Default: all.
	Selector labels.Selector

	mu      sync.Mutex // guards what follows
	members *reports
}

var (
	_ fleet.Provider  = (*Provider)(nil)
	_ fleet.Refresher = (*Provider)(nil)
)

// name is that of the provider, in logs, events and problems.
const name = "access"

// Run implements [fleet.Provider]. It returns an error before ctx is done only if the provider can never work.
func (p *Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	namespaces, err := p.namespaces()
	if err != nil {
		return err
	}
	hub, err := access.NewHub(local.GetConfig(), local.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("providers/access: a client of the hub: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	kind := v1alpha1.GroupVersion().WithKind(v1alpha1.KindClusterAccess)
	if _, ok := (served.Provider{Name: name, Members: members}).Wait(ctx, local, kind.GroupKind(), kind.Version); !ok {
		return nil // ctx is done
	}
	reports := p.begin(members)
	sources := access.NewSources(hub)
	defer sources.Close()
	engine := objects.Provider[*v1alpha1.ClusterAccess]{
		Name: name, Object: &v1alpha1.ClusterAccess{}, Scheme: scheme, Namespaces: namespaces,
		Members: func(_ context.Context, a *v1alpha1.ClusterAccess, _ objects.Reader) ([]fleet.Member, error) {
			return p.describe(a, sources, reports), nil
		},
		Gone: func(key client.ObjectKey) { reports.forget(p.name(key)) },
	}
	if p.Selector != nil {
		engine.Selectors = []labels.Selector{p.Selector}
	}
	return engine.Run(ctx, local, reports)
}

// namespaces returns where the ClusterAccesses are; nothing stands for all namespaces.
func (p *Provider) namespaces() ([]string, error) {
	switch {
	case p.AllNamespaces && p.Namespace != "":
		return nil, errors.New("providers/access: set one of Provider.Namespace and AllNamespaces")
	case p.AllNamespaces:
		return nil, nil
	case p.Namespace != "":
		return []string{p.Namespace}, nil
	}
	own, err := inpod.Namespace(inpod.NamespaceFile)
	if err != nil {
		return nil, fmt.Errorf("providers/access: the ClusterAccesses are in the manager's own namespace by default: %w, or Provider.Namespace", err)
	}
	return []string{own}, nil
}

func (p *Provider) begin(members fleet.Members) *reports {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members = newReports(members)
	return p.members
}

// Refresh implements [fleet.Refresher].
func (p *Provider) Refresh(ctx context.Context, name fleet.ClusterName) error {
	p.mu.Lock()
	members := p.members
	p.mu.Unlock()
	if source := members.source(name); source != nil {
		return source.Refresh(ctx)
	}
	return nil
}

// name returns the name of the member.
func (p *Provider) name(access client.ObjectKey) fleet.ClusterName {
	if p.AllNamespaces {
		return fleet.ClusterName(access.Namespace + "/" + access.Name)
	}
	return fleet.ClusterName(access.Name)
}

// describe returns the member of an access, or none. When its credentials expire is up to the reports. It is called for one access at a time.
func (p *Provider) describe(a *v1alpha1.ClusterAccess, sources *access.Sources, reports *reports) []fleet.Member {
	member := p.name(client.ObjectKeyFromObject(a))
	if a.Spec.Paused || !a.DeletionTimestamp.IsZero() && !objects.LeavesWell(a) {
		reports.forget(member)
		return nil
	}
	m := fleet.Member{Name: member, Labels: objects.Unreserved(a.Labels), Revision: revision(a)}
	cfg, err := access.Config(a.Spec)
	if err != nil {
		return []fleet.Member{{Name: member, Labels: m.Labels, Err: err}}
	}
	source := reports.use(member, m.Revision, func(renewed func()) *access.Source {
		return sources.Source(a, func(access.Token) { renewed() })
	})
	if err := source.Authorize(cfg); err != nil {
		return []fleet.Member{{Name: member, Labels: m.Labels, Err: err}}
	}
	m.Config = cfg
	return []fleet.Member{m}
}

// revision returns a hash of what tokens are made of, and of how the cluster is reached.
func revision(a *v1alpha1.ClusterAccess) string {
	spec := a.Spec
	spec.AllowedImports = nil
	text, err := json.Marshal([]any{a.Namespace, a.Name, a.UID, spec})
	if err != nil { // of such a type there is none
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
