package kind_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

// often is an interval for tests, in which what kind runs is a small script.
const often = 10 * time.Millisecond

// TestConformance runs the suite on kind's library, with a program that stands in for docker.
func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
		t.Helper()
		engine := install(t, "docker")
		labels := sync.Map{} // by the name of the cluster, map[string]string
		return providertest.Source{
			Provider: func() fleet.Provider {
				return kind.Provider{Interval: often, Labels: func(cluster string) map[string]string {
					l, _ := labels.Load(cluster)
					return l.(map[string]string)
				}}
			},
			Set: func(t *testing.T, d providertest.Description) {
				t.Helper()
				labels.Store(d.Name, d.Labels)
				engine.create(t, d.Name, d.Config)
			},
			Break: func(t *testing.T, d providertest.Description) {
				t.Helper()
				labels.Store(d.Name, d.Labels)
				text, err := mctest.Kubeconfig(d.Config)
				must(t, err)
				token := bytes.Index(text, []byte(d.Config.BearerToken))
				engine.put(t, d.Name, "admin.conf", slices.Concat(text[:token], []byte("{"), text[token:]))
			},
			Remove: engine.remove,
			Rename: func(t *testing.T, from, to string) {
				t.Helper()
				l, _ := labels.Load(from)
				labels.Store(to, l)
				engine.rename(t, from, to)
			},
			Interrupt: engine.interrupt,
		}
	}})
}
