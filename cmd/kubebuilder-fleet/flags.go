package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kubebuilder/v4/pkg/plugin"
	"sigs.k8s.io/kubebuilder/v4/pkg/plugin/external"

	"github.com/fleet-runtime/fleet-runtime/cmd/kubebuilder-fleet/internal/project"
)

// options are what a command line says to this plugin.
type options struct {
	project.Options
	kind string
}

const (
	providerFlag  = "provider"
	namespaceFlag = "fleet-namespace"
	versionFlag   = "fleet-runtime-version"
	replaceFlag   = "fleet-runtime-replace"
	kindFlag      = "kind"

	stringFlag = "string"
)

func flags() []external.Flag {
	return []external.Flag{
		{
			Name: providerFlag, Type: stringFlag, Default: project.DefaultProvider,
			Usage: "what finds the members of the fleet: " + strings.Join(project.ProviderNames(), ", "),
		},
		{
			Name: namespaceFlag, Type: stringFlag, Default: "fleet",
			Usage: "the namespace of the hub in which the provider finds the members: kubeconfigs, Clusters or ClusterProfiles",
		},
		{
			Name: versionFlag, Type: stringFlag, Default: fleetRuntimeVersion(),
			Usage: "the version of fleet-runtime in go.mod",
		},
		{
			Name: replaceFlag, Type: stringFlag, Default: "",
			Usage: "the folder of a checkout of fleet-runtime that go.mod shall use in the place of a version",
		},
	}
}

// flagsOf returns the flags of a subcommand, which kubebuilder names by an argument. Only those that move a project have any.
func flagsOf(args []string) []external.Flag {
	if slices.Contains(args, "--init") || slices.Contains(args, "--edit") {
		return flags()
	}
	return nil
}

// parse reads the flags of this plugin. kubebuilder passes on those of other plugins too.
func parse(command string, args []string) (o options, err error) {
	set := pflag.NewFlagSet(command, pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	set.Usage = func() {}
	values := map[string]*string{kindFlag: set.String(kindFlag, "", "")}
	for _, flag := range flags() {
		values[flag.Name] = set.String(flag.Name, flag.Default, "")
	}
	if err := set.Parse(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return o, fmt.Errorf("reading the flags: %w", err)
	}
	o.kind = *values[kindFlag]
	if command == "create api" && o.kind == "" {
		return o, errors.New("--kind is missing")
	}
	o.Namespace, o.Replace = *values[namespaceFlag], *values[replaceFlag]
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return o, fmt.Errorf("--%s %q is no name of a namespace: %s", namespaceFlag, o.Namespace, strings.Join(problems, "; "))
	}
	o.Version = *values[versionFlag]
	if o.Replace != "" && !set.Changed(versionFlag) {
		o.Version = ""
	}
	o.Provider, err = project.FindProvider(*values[providerFlag])
	return o, err
}

// metadataOf returns the help of a subcommand.
func metadataOf(args []string) plugin.SubcommandMetadata {
	switch {
	case slices.Contains(args, "--init"):
		return plugin.SubcommandMetadata{
			Description: "Initialize a project whose controllers run against every cluster of a fleet, by fleet-runtime.\n" +
				"Its manager runs in a hub, and finds the members by a provider.",
			Examples: "  kubebuilder init --plugins go/v4," + pluginKey + " --domain example.com --repo example.com/guestbook --provider=kubeconfig",
		}
	case slices.Contains(args, "--edit"):
		return plugin.SubcommandMetadata{
			Description: "Move a project to fleet-runtime, so that its controllers run against every cluster of a fleet.\n" +
				"What is left to you is listed by file and line. A second run changes nothing.",
			Examples: "  kubebuilder edit --plugins " + pluginKey + " --provider=kubeconfig",
		}
	case slices.Contains(args, "--api"):
		return plugin.SubcommandMetadata{
			Description: "Scaffold a kind, and a controller that runs against every cluster of a fleet.",
			Examples:    "  kubebuilder create api --group webapp --version v1 --kind Guestbook --resource --controller",
		}
	default:
		return plugin.SubcommandMetadata{Description: "Scaffold a webhook. The manager's webhooks serve the hub, and not the members."}
	}
}
