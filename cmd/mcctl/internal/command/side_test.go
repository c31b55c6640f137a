package command_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// TestManyQuestionsDoNotWaitForTheirTurn: client-go gives five a second, and what the caller may do takes hundreds. None waits for ever either. The
// time is no matter of what loads the config: that looks for the cluster of a Pod where nothing else is said.
func TestManyQuestionsDoNotWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	kubeconfig := write(t, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: https://a.example.com}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`)
	for flag, takes := range map[string]time.Duration{"": time.Minute, "--request-timeout=30s": 30 * time.Second, "--request-timeout=7": 7 * time.Second, "--request-timeout=0": 0} {
		config, loaded, err := command.Connect(t.Context(), kubeconfig, slices.DeleteFunc([]string{flag}, func(f string) bool { return f == "" })...)
		if err != nil {
			t.Fatal(err)
		}
		if config.QPS >= 0 || config.Timeout != takes || loaded.Timeout != 0 {
			t.Errorf("%s: %v questions a second, of which each may take %s, or %s as it was loaded", flag, config.QPS, config.Timeout, loaded.Timeout)
		}
	}
	if _, _, err := command.Connect(t.Context(), kubeconfig, "--request-timeout=soon"); err == nil || !strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("a time that is none: %v", err)
	}
}
