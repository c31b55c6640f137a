// Package static is the provider of clusters that are known from the start.
package static

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Provider is a [fleet.Provider] of the members in the list, for as long as it runs. The zero value has none. A list must
// not be changed after Run was called, and neither may what its members point to.
//
// A member with a Cluster is a cluster that the program has made: it starts and stops it too, such as by adding it to
// the manager. A member with an Err is one that could not be made, and is shown as such.
type Provider []fleet.Member

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. If an entry cannot be used, or two have one name, it returns an error that names all of
// these, and reports nothing: the list is part of the program, and the program is wrong.
func (p Provider) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	if err := p.validate(); err != nil {
		return err
	}
	for _, m := range p {
		// One that is refused, such as for a name that another provider has, stops no other.
		if err := members.Set(m); err != nil && !errors.Is(err, fleet.ErrStopped) {
			logf.FromContext(ctx).Error(err, "The member is not reported", "cluster", m.Name)
		}
	}
	<-ctx.Done()
	return nil
}

func (p Provider) validate() error {
	seen := make(map[fleet.ClusterName]int, len(p))
	var errs []error
	for i, m := range p {
		if err := m.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("providers/static: entry %d: %w", i, err))
		} else if first, ok := seen[m.Name]; ok {
			errs = append(errs, fmt.Errorf("providers/static: entries %d and %d: %w: both are named %q", first, i, fleet.ErrInvalidMember, m.Name))
		} else {
			seen[m.Name] = i
		}
	}
	return errors.Join(errs...)
}
