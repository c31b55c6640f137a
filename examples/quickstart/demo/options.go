package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// options are what the user has asked for.
type options struct {
	kubeconfig string
	contexts   []string
	replicas   int
	stay       bool
	logFile    string
	log        *os.File // what goes to it
}

const usage = `Quickstart runs one controller of ConfigMaps against several clusters and shows what it does.

Without --kubeconfig it starts four control planes on this machine, lets members join, break and leave, and ends.
With --replicas=3 three processes share the members, and one of them is killed.
With --kubeconfig and --contexts it runs against your clusters. It only reads there.

`

func parse(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		_, _ = io.WriteString(output, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "run against the clusters of this kubeconfig `file`")
	contexts := flags.String("contexts", "", "the `names` of its contexts, separated by commas; the first is the local cluster too")
	flags.IntVar(&o.replicas, "replicas", 1, "run so many `processes` that share the members, and kill one")
	flags.BoolVar(&o.stay, "stay", false, "go on until Ctrl-C")
	flags.StringVar(&o.logFile, "log", "", "write the log of the manager to this `file` (default: one that is removed after success)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for name := range strings.SplitSeq(*contexts, ",") {
		if name = strings.TrimSpace(name); name != "" {
			o.contexts = append(o.contexts, name)
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("do not know what to do with %q; --help says what there is", flags.Args())
	case o.kubeconfig == "" && len(o.contexts) > 0:
		return o, errors.New("--contexts needs --kubeconfig, the file that has them")
	case o.replicas < 1:
		return o, errors.New("--replicas needs at least one")
	case o.replicas > 1 && o.kubeconfig != "":
		return o, errors.New("--replicas is for clusters of the demo's own: replicas write Leases, and nothing is written to yours")
	}
	return o, nil
}

// setUp brings the clusters along.
func (o options) setUp(ctx context.Context, screen screen) (*setting, error) {
	if o.kubeconfig != "" {
		return o.realClusters(screen)
	}
	return o.controlPlanes(ctx, screen)
}
