package fleet_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// slowConnects is an observer that tells which members took long to connect.
type slowConnects struct{}

// Begin implements fleet.Observer.
func (slowConnects) Begin(step fleet.Step) (end func(err error)) {
	begun := time.Now()
	return func(err error) {
		if took := time.Since(begun); step.Kind == fleet.StepConnect && took > 10*time.Second {
			fmt.Printf("%s took %s to connect (%v)\n", step.Member, took, err)
		}
	}
}

// Transport implements fleet.Observer.
func (slowConnects) Transport(_ fleet.ClusterName, rt http.RoundTripper) http.RoundTripper { return rt }

// An observer is told of the steps of members that take time. Package telemetry has one that makes traces.
func ExampleObserver() {
	var told fleet.Observer = slowConnects{}
	fleet.New(fleet.Options{Observer: told}) // or by an option of mcmanager.New
}
