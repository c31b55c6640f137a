package mctest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// RestartWith starts the API server again with flags of kube-apiserver beside its own, written --name=value. A flag that it has
// already gets the new values in the place of the old ones, and one that is given several times has them all. They stay for the
// life of the control plane, which no later test of a [Pool] is given.
func (cp *ControlPlane) RestartWith(tb testing.TB, flags ...string) {
	tb.Helper()
	values, err := parseFlags(flags)
	must(tb, err)
	cp.server.flagged = true
	for name, v := range values {
		cp.server.env.ControlPlane.GetAPIServer().Configure().Set(name, v...)
	}
	if err := cp.APIServer.Restart(); err != nil {
		tb.Fatalf("mctest: %v; the end of its log:\n%s", err, tail(cp.server.log.Name()))
	}
}

// parseFlags returns the values of each flag.
func parseFlags(flags []string) (map[string][]string, error) {
	values := map[string][]string{}
	for _, flag := range flags {
		name, value, found := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if !found || name == "" || !strings.HasPrefix(flag, "--") {
			return nil, fmt.Errorf("the flag %q must be written --name=value", flag)
		}
		values[name] = append(values[name], value)
	}
	return values, nil
}

// errFlagged is why a control plane does not look new.
var errFlagged = errors.New("its API server runs with flags of a test")
