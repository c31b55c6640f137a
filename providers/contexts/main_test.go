package contexts_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

var pool mctest.Pool

// TestMain runs the tests, or is the credential plugin as which a test has this program run again.
func TestMain(m *testing.M) {
	if tokenFile, ok := os.LookupEnv(pluginEnv); ok {
		os.Exit(plugin(tokenFile))
	}
	logf.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}
