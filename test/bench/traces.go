package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// tracesTable answers: what do spans add to a reconcile that reads an object from an API server and writes it?
func tracesTable(ctx context.Context) error {
	f, err := mctest.New(ctx, mctest.Options{})
	if err != nil {
		return err
	}
	return errors.Join(printTraces(ctx, f.Local), f.Close())
}

func printTraces(ctx context.Context, cp *mctest.ControlPlane) error {
	root, err := moduleFolder(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // what is left is small
	kubeconfig, err := mctest.Kubeconfig(cp.Config())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "kubeconfig"), kubeconfig, 0o600)
	}
	if err != nil {
		return err
	}
	progressf("%d reconciles of each kind, in turn", *tracesRounds)
	cost := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(root, "telemetry"), "./internal/cost", //nolint:gosec // it is ours
		"-kubeconfig", filepath.Join(folder, "kubeconfig"), "-rounds", strconv.Itoa(*tracesRounds))
	cost.Stderr = os.Stderr
	output, err := cost.Output()
	if err != nil {
		return fmt.Errorf("measuring what spans cost: %w", err)
	}
	var medians map[string]float64
	if err := json.Unmarshal(output, &medians); err != nil {
		return err
	}
	t := table{
		title:  fmt.Sprintf("Traces: a reconcile that reads an object and writes it, median of %d", *tracesRounds),
		header: []string{"", "time", "to without"},
	}
	for _, row := range []struct{ name, key string }{
		{"without package telemetry", "without"}, {"with it, and no exporter", "off"}, {"with it, every span is sampled", "on"},
	} {
		t.add(row.name, perItem(medians[row.key]), fmt.Sprintf("%.3f×", medians[row.key]/medians["without"]))
	}
	t.print()
	return nil
}
