package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// newControls returns the commands that say in a Member what it is to be.
func newControls(s *shared) []*cobra.Command {
	return []*cobra.Command{
		s.control("pause", "Stop reconciles of a member", `Stops reconciles of a member. It stays connected, and what changes there is reconciled when it is resumed.`,
			map[string]any{"paused": true}),
		s.control("resume", "Go on with reconciles of a member that was paused", `Goes on with reconciles of a member that was paused: first with what has waited. One that drain --leave lets leave stays.`,
			map[string]any{"paused": nil, "leave": nil, "reason": nil}),
		newDrain(s),
		s.control("undrain", "Connect a member again that was drained", `Connects a member again that was drained. One that drain --leave lets leave stays, and the controllers put back what they have taken
back.`,
			map[string]any{"drained": nil, "leave": nil, "reason": nil}),
	}
}

func newDrain(s *shared) *cobra.Command {
	spec := map[string]any{}
	c := s.control("drain", "Disconnect a member, and keep it as a member", `Ends what runs for a member, closes its connections, and keeps it so.

With --leave, the controllers first take back what they have put into the member, such as finalizers and dependents, as long as the manager
gives them for that. mcctl undrain undoes it.`, spec)
	leave := c.Flags().Bool("leave", false, "Let the controllers take back what they have put into the member, before it is drained")
	c.PreRun = func(*cobra.Command, []string) {
		if *leave {
			spec["leave"] = true
		} else {
			spec["drained"] = true
		}
	}
	return c
}

func (s *shared) control(verb, short, long string, spec map[string]any) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Long:  long + "\n\nManagers follow it that write Members.",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if reason != "" {
				spec["reason"] = reason
			}
			return s.set(c.Context(), args[0], spec)
		},
	}
	if _, clears := spec["reason"]; !clears {
		c.Flags().StringVar(&reason, "reason", "", "Why, for those that see the member")
	}
	return c
}

func (s *shared) set(ctx context.Context, name string, spec map[string]any) error {
	hub, err := s.hub.connect(ctx)
	if err != nil {
		return err
	}
	k, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	if k.member == nil {
		return fmt.Errorf("the hub (%s) has %s, and no Member %q in the namespace %s: only managers that write Members can be told so, and %s",
			hub.config.Host, describe(k.access), name, hub.namespace, elsewhere(k.access))
	}
	if reason, is := spec["reason"]; is && reason == nil && staysHeld(k.member.Spec, spec) {
		delete(spec, "reason")
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	before := k.member.ResourceVersion
	if err := hub.Patch(ctx, k.member, client.RawPatch("application/merge-patch+json", patch), fieldManager); err != nil {
		k.member.SetGroupVersionKind(membersv1alpha1.GroupVersion().WithKind(membersv1alpha1.Kind))
		return hub.failed("change", k.member, err)
	}
	result := changed
	if k.member.ResourceVersion == before {
		result = unchanged
	}
	_, err = fmt.Fprintf(s.streams.Out, "member %s: %s\n", name, result)
	return err
}

// staysHeld reports whether a member that is to go on in one way is held back in the other: the reason is that of both.
func staysHeld(is membersv1alpha1.Spec, change map[string]any) bool {
	_, resumes := change["paused"]
	_, undrains := change["drained"]
	return is.Paused && !resumes || is.Drained && !undrains
}
