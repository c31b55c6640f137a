package command

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// completeWithin is how long a shell waits for the hub.
const completeWithin = 5 * time.Second

// complete lets a shell complete the names of members, the contexts and what flags may be. It ends what the command itself is made of.
func (s *shared) complete(c *cobra.Command) {
	c.ValidArgsFunction = cobra.NoFileCompletions
	if strings.Contains(c.Use, " NAME") && c.Name() != "join" { // which takes a new one
		c.ValidArgsFunction = s.members
	}
	output := []string{"yaml", asJSON}
	if c.Name() == "list" {
		output = append(output, asWide, asName)
	}
	values := map[string][]string{
		"dependents": {keepDependents, pruneDependents}, "dry-run": {"none", "client", "server"}, "output": output,
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		var err error
		if of := values[f.Name]; of != nil {
			err = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp))
		}
		if prefix, is := strings.CutSuffix(f.Name, "context"); is {
			err = c.RegisterFlagCompletionFunc(f.Name, contextsIn(prefix+"kubeconfig"))
		}
		if err != nil {
			panic(err) // a flag has two
		}
	})
}

// members returns the names of the members that the hub has.
func (s *shared) members(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	hub, err := s.hub.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := map[string]bool{}
	members, accesses := &membersv1alpha1.MemberList{}, &accessv1alpha1.ClusterAccessList{}
	if err := hub.List(ctx, members, client.InNamespace(hub.namespace)); err == nil {
		for i := range members.Items {
			names[members.Items[i].Spec.ClusterName] = true
		}
	}
	if err := hub.List(ctx, accesses, client.InNamespace(hub.namespace)); err == nil {
		for i := range accesses.Items {
			names[accesses.Items[i].Name] = true
		}
	}
	return legibleAll(names), cobra.ShellCompDirectiveNoFileComp
}

// contextsIn returns the contexts of the kubeconfig that a flag names.
func contextsIn(flag string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		if f := c.Flag(flag); f != nil {
			rules.ExplicitPath = f.Value.String()
		}
		config, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := map[string]bool{}
		for name := range config.Contexts {
			names[name] = true
		}
		return legibleAll(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// legibleAll returns names that move no cursor, in their order.
func legibleAll(names map[string]bool) []string {
	all := slices.Sorted(maps.Keys(names))
	for i := range all {
		all[i] = legible(all[i])
	}
	return all
}

// newHelp returns the command help, which is the one of cobra but for topics that there are not: these are usage errors.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usageError("there is no command %q", strings.Join(args, " "))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// checkShell makes another shell than those of the command completion a usage error.
func checkShell(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}
