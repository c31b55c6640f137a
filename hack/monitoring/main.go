// Command monitoring writes what Grafana and Prometheus need to watch a fleet: dashboards, and a PrometheusRule with alerts.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:generate go run . ../../config/monitoring

func main() {
	after := flag.String("for", "", "a `duration` that replaces for how long what an alert is about must last, for trials")
	flag.Parse()
	if err := write(flag.Arg(0), *after); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// project is what the rules and dashboards are named after.
const project = "fleet-runtime"

// write writes the files into a folder.
func write(folder, after string) error {
	for name, d := range dashboards() {
		content, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name+".json"), append(content, '\n'), 0o600); err != nil {
			return err
		}
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": project}, "spec": groups(after),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "alerts.yaml"), append([]byte("# Made by hack/monitoring.\n"), content...), 0o600)
}

// groups are the rules as Prometheus reads them from a file, and the operator from a PrometheusRule.
func groups(after string) map[string]any {
	rules := alerts()
	for i := range rules {
		if after != "" {
			rules[i].For = after
		}
	}
	return map[string]any{"groups": []any{map[string]any{"name": project, "rules": rules}}}
}

// anchor is that of an alert's section.
func anchor(name string) string { return strings.ToLower(name) }
