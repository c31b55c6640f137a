package command_test

import (
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// TestManyQuestionsDoNotWaitForTheirTurn: client-go gives five a second, and what the caller may do takes hundreds. None waits for ever either.
func TestManyQuestionsDoNotWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	config, err := command.Connect(t.Context(), write(t, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: https://a.example.com}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`))
	if err != nil {
		t.Fatal(err)
	}
	if config.QPS >= 0 || config.Timeout != time.Minute {
		t.Errorf("%v questions a second, of which each may take %s", config.QPS, config.Timeout)
	}
}
