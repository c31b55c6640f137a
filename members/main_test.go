package members_test

import (
	"os"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }
