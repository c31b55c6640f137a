package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func newShards(s *shared) *cobra.Command {
	return &cobra.Command{
		Use:   "shards",
		Short: "Show how many members each replica works on",
		Long: `Shows how many members each replica works on, as the Members say it. A replica is STALE if its Lease is held by nobody: what it had is
about to move to others. A replica that works on no member is not shown.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.shards(c.Context()) },
	}
}

// shard is what one replica works on.
type shard struct {
	members, ready, paused int
	stale                  bool
}

func (s *shared) shards(ctx context.Context) error {
	hub, err := s.hub.connect(ctx)
	if err != nil {
		return err
	}
	members := &membersv1alpha1.MemberList{}
	if err := hub.List(ctx, members, client.InNamespace(hub.namespace)); err != nil {
		return fmt.Errorf("list the members in the hub (%s): %w", hub.config.Host, err)
	}
	if len(members.Items) == 0 {
		tellf(s.streams.ErrOut, "The hub (%s) has no Members in the namespace %q.\n", hub.config.Host, hub.namespace)
		return nil
	}
	found, held := map[string]*shard{}, leases{}
	for i := range members.Items {
		m := &members.Items[i]
		if found[m.Status.Replica] == nil {
			found[m.Status.Replica] = &shard{}
		}
		at := found[m.Status.Replica]
		at.members++
		if m.Status.State == string(fleet.Ready) {
			at.ready++
		}
		if m.Spec.Paused || m.Spec.Drained {
			at.paused++
		}
		at.stale = at.stale || held.stale(ctx, hub, m)
	}
	t := &metav1.Table{ColumnDefinitions: columns(false, []string{columnReplica, "Members", "Ready", "Paused", columnState}, nil)}
	for _, name := range slices.SortedFunc(maps.Keys(found), cmp.Compare[string]) {
		at, state := found[name], "Live"
		if at.stale {
			state = "STALE"
		}
		t.Rows = append(t.Rows, row(false, nil, orNone(name), at.members, at.ready, at.paused, state))
	}
	return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(t, s.streams.Out)
}
