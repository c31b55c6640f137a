package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// registered returns the names of the metrics, from the code that registers them.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	names, name := map[string]bool{}, regexp.MustCompile(`(?:desc\(|counter\(|Name:\s+|metricPrefix \+ )"([a-z_]+)"`)
	for prefix, pattern := range map[string]string{
		"fleet_runtime_": "../../fleet/metrics.go", "fleet_runtime_queue_": "../../mcqueue/*metrics.go", "fleet_runtime_sharding_": "../../sharding/metrics.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			for _, found := range name.FindAllStringSubmatch(read(t, file), -1) {
				names[prefix+found[1]] = true
			}
		}
	}
	return names
}

// TestNoMetricIsNamedThatIsNotRegistered in a dashboard or an alert.
func TestNoMetricIsNamedThatIsNotRegistered(t *testing.T) {
	known, metric := registered(t), regexp.MustCompile(`fleet_runtime_[a-z_]+`)
	var exprs []string
	for _, a := range alerts() {
		exprs = append(exprs, a.Expr)
	}
	for _, d := range dashboards() {
		for _, p := range d.Panels {
			exprs = append(exprs, p.Targets[0].Expr)
		}
	}
	for _, expr := range exprs {
		names := metric.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", expr)
		}
		for _, name := range names {
			base := name
			for _, suffix := range []string{"_sum", "_count", "_bucket"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[name] && !known[base] {
				t.Errorf("%s: no metric %s is registered", expr, name)
			}
		}
	}
}

func TestEachAlertHasItsSection(t *testing.T) {
	operating := read(t, "../../docs/operating.md")
	for _, a := range alerts() {
		_, section, ok := strings.Cut(operating, "\n### "+a.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for _, part := range []string{"Cause:", "Check:", "Cure:"} {
			if !ok || !strings.Contains(section, part) {
				t.Errorf("docs/operating.md has no section %s with a %s", a.Alert, part)
			}
		}
		if !strings.HasSuffix(a.Annotations["runbook_url"], "docs/operating.md#"+strings.ToLower(a.Alert)) {
			t.Errorf("%s links %s", a.Alert, a.Annotations["runbook_url"])
		}
	}
}

func TestWhatIsCommittedIsWhatIsGenerated(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alerts.yaml", "fleet.json", "member.json", "controller.json", "sharding.json"} {
		if read(t, filepath.Join(folder, name)) != read(t, "../../config/monitoring/"+name) {
			t.Errorf("config/monitoring/%s is not what is generated: run make generate", name)
		}
	}
}

// TestAlertsFireAndResolve by promtool, which says where one fires early, late or not at all.
func TestAlertsFireAndResolve(t *testing.T) {
	promtool, err := exec.LookPath(os.Getenv("PROMTOOL"))
	if err != nil {
		promtool, err = exec.LookPath("promtool")
	}
	if err != nil {
		t.Skip("SKIPPED: NO ALERT WAS TESTED ON THIS MACHINE. Install Debian's package prometheus, or name its promtool in PROMTOOL.")
	}
	folder := t.TempDir()
	rules, err := yaml.Marshal(groups(""))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"rules.yaml": string(rules), "tests.yaml": read(t, "testdata/alerts.yaml")} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range alerts() {
		if strings.Count(read(t, "testdata/alerts.yaml"), "alertname: "+a.Alert+"\n") < 3 {
			t.Errorf("testdata/alerts.yaml does not say when %s fires not yet, fires, and fires no more", a.Alert)
		}
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Join(folder, "tests.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
