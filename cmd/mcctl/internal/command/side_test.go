package command_test

import (
	"testing"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// TestManyQuestionsDoNotWaitForTheirTurn: client-go gives five a second, and what the caller may do takes hundreds.
func TestManyQuestionsDoNotWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	config, err := command.Connect(write(t, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: https://a.example.com}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`))
	if err != nil {
		t.Fatal(err)
	}
	if config.QPS >= 0 {
		t.Errorf("%v questions a second", config.QPS)
	}
}
