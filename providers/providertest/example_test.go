package providertest_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

// A list in the program is the simplest source: all that there can be done with it is to put clusters into it before
// the provider begins.
func ExampleRun() {
	var t *testing.T // of func TestConformance(t *testing.T)
	providertest.Run(t, providertest.Harness{
		Fixed: "the list is fixed",
		New: func(*testing.T) providertest.Source {
			var list static.Provider
			return providertest.Source{
				Provider: func() fleet.Provider { return list },
				Set: func(_ *testing.T, d providertest.Description) {
					list = append(list, fleet.Member{Name: fleet.ClusterName(d.Name), Config: d.Config, Labels: d.Labels})
				},
			}
		},
	})
}

// A provider whose local cluster is made of this config does not reach it while the line is cut.
func ExampleLine() {
	var line providertest.Line
	config := line.Through(&rest.Config{Host: "https://hub.example"})

	noticed, restore := line.Cut()
	_, err := config.Dial(context.Background(), "tcp", "hub.example:443")
	fmt.Println(err)
	<-noticed
	restore()
	// Output: the line is cut
}
