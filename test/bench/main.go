// Command bench measures what the README promises, each figure beside that of a peer in the same run, and prints tables
// of ratios. Figures depend on the machine; the ratios are what counts.
//
//	go run ./test/bench            # everything
//	go run ./test/bench queue      # one table: queue, fairness, bulkhead, freeze
//	go run ./test/bench -members 100 engage idle # of: memory, engage, churn, bad, overhead, idle, outage, dependents, sweep, replicator, traces, sharding (-help has the sizes)
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// benchmarks are the tables, in the order in which they are printed.
var benchmarks = []struct {
	name string
	run  func(ctx context.Context) error
}{
	{"queue", queueTables},
	{"fairness", fairnessTable},
	{"bulkhead", bulkheadTable},
	{"freeze", freezeTable},
	{"memory", membersTable},
	{"engage", engageTable},
	{"churn", churnTable},
	{"bad", badTable},
	{"overhead", overheadTable},
	{"idle", idleTable},
	{"outage", outageTable},
	{"dependents", dependentsTable},
	{"sweep", sweepTable},
	{"replicator", replicatorTable},
	{"traces", tracesTable},
	{"sharding", shardingTables},
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	flag.Parse()
	var err error
	if flag.Arg(0) == childArgument {
		err = serve(ctx)
	} else {
		err = run(ctx, flag.Args())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	fmt.Printf("%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for _, b := range benchmarks {
		if len(only) > 0 && !slices.Contains(only, b.name) {
			continue
		}
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}
