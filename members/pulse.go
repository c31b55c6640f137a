package members

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// leaseName is that of the Lease by which others see that the writer of the Members lives, where it has none for another reason.
const leaseName = "fleet-members"

// How often the Lease is renewed, and after what silence it has lapsed, as that of a node.
const (
	renewEvery = 10 * time.Second
	lapsesIn   = 40 * time.Second
)

// leaseNow names the Lease of this replica, nil if it has none now.
func (m *mirror) leaseNow() *v1alpha1.Lease {
	if !m.fleet.Shared() {
		return &v1alpha1.Lease{Namespace: m.opts.Namespace, Name: leaseName}
	}
	lease := m.fleet.Lease()
	if lease.Name == "" {
		return nil
	}
	return &v1alpha1.Lease{Namespace: lease.Namespace, Name: lease.Name}
}

// pulse renews the Lease of the replica that writes the Members, for as long as it leads.
type pulse struct {
	writer    client.Client
	namespace string
	log       logr.Logger
}

func (m *mirror) pulse() pulse { return pulse{m.writer, m.opts.Namespace, m.log} }

// Start implements manager.Runnable.
func (p pulse) Start(ctx context.Context) error {
	holder, err := inpod.Name()
	if err != nil {
		holder = leaseName
	}
	beat := time.NewTicker(renewEvery)
	defer beat.Stop()
	failed := ""
	for {
		err := p.renew(ctx, holder)
		if reason := fleet.ReasonOf(err); reason != failed && ctx.Err() == nil {
			if failed = reason; err != nil {
				p.log.Info("Cannot renew the Lease of the Members' writer; trying again", "lease", leaseName, "reason", reason, "error", err.Error())
			}
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p pulse) renew(ctx context.Context, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	lease := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"holderIdentity": holder, "leaseDurationSeconds": int64(lapsesIn.Seconds()), "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
	}}}
	lease.SetAPIVersion("coordination.k8s.io/v1")
	lease.SetKind("Lease")
	lease.SetNamespace(p.namespace)
	lease.SetName(leaseName)
	return p.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(lease), fieldOwner, client.ForceOwnership)
}
