// Package replicas has tests of several processes that share members, with real API servers. What it claims, it reads from the logs
// of proxies before the members alone.
package replicas

import (
	"os"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, runProgram)) }
