// Package providertest is the conformance suite of providers: what a [fleet.Provider] must do for the clusters that it
// discovers, as tests that any provider can run.
//
// A test of a provider hands [Run] a [Harness], which makes sources: what the provider discovers from, such as a folder
// of files, objects in the local cluster, or a service. Each case of the suite gets a source of its own, describes
// clusters in it, changes and removes them, and watches what the provider reports.
//
// The clusters do not exist. The suite listens at their addresses, and nobody may call there.
package providertest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Harness says how the suite tests one kind of provider.
type Harness struct {
	// New returns an empty source. It is called once for each case, with the test of that case: what the source needs
	// ends with that test, by its Cleanup. Required.
	New func(t *testing.T) Source

	// Name returns the name of the member that a description of this name becomes.
	// Default: the same.
	Name func(name string) fleet.ClusterName

	// Diff says in what a member differs from its description, and "" if it does not. A provider needs one if its
	// configs hold the credentials elsewhere than in BearerToken, such as in the arguments of a program.
	// Default: [Description.Diff].
	Diff func(want Description, got fleet.Member) string

	// NoConfig says why a source of this kind cannot say how a cluster is reached. Descriptions then have no Config, and
	// cases that need it are skipped and say why. Default: it can.
	NoConfig string

	// NoLabels says why a source of this kind cannot give labels. Descriptions then have none, and cases that need them
	// are skipped and say why. Default: it can.
	NoLabels string

	// Fixed says why a source of this kind cannot change after the provider has begun. Cases in which it would are
	// skipped and say why; all others describe what there is before [Source.Provider] is called. Default: it can change.
	Fixed string

	// Parallel says that cases may run in parallel, for providers that wait long. New is then called by several goroutines at
	// once. A case that must be alone still is. Default: one case at a time.
	Parallel bool

	// Skip has cases that the provider does not pass, by their names, each with the reason, which is shown.
	// Default: none.
	Skip map[string]string
}

// Source is what a provider discovers from, in the hands of the suite. A field that is nil is something that the source
// cannot do; cases that need it are skipped and say so. All functions return when the source has changed; what the
// provider makes of it is awaited by the suite. They end the test by t if they fail.
type Source struct {
	// Provider returns a new provider that discovers from the source. It may be called several times, for providers
	// that run one after the other. Required.
	Provider func() fleet.Provider

	// Local is passed to the provider. Whoever made it starts it before, and stops it with the test.
	Local cluster.Cluster

	// Set describes a cluster: a new one, or news of a known one, or one whose description was broken. Required.
	Set func(t *testing.T, d Description)

	// Touch writes the description of a cluster again with nothing changed that matters for the member, such as an
	// annotation or the time of a file. Default: Set with the same description.
	Touch func(t *testing.T, d Description)

	// Remove removes the description of a cluster; of several, the oldest.
	Remove func(t *testing.T, name string)

	// Leave begins to remove the description of a cluster such that the member can leave well before: an object with a
	// finalizer is deleted, for instance. The description is removed when the member has left.
	Leave func(t *testing.T, name string)

	// Rename gives the cluster another name in one step.
	Rename func(t *testing.T, from, to string)

	// Break puts something that cannot be used in the place of the description: best with the credentials of d still in
	// it, such as a kubeconfig that is cut off in the middle, so that it shows whether they get into an error.
	Break func(t *testing.T, d Description)

	// Duplicate describes the member d.Name a second time, by something younger than what has it already.
	Duplicate func(t *testing.T, d Description)

	// Interrupt cuts the provider off from what it discovers from, until restore is called. Meanwhile the other
	// functions go on working: it is the way there that fails, such as a service that answers with errors, a folder
	// that is moved away, or a [Line] to a local cluster. noticed is closed when the provider has tried in vain; it is
	// nil if that cannot be told. Interrupt is also called before the provider runs, and when Local has started.
	Interrupt func(t *testing.T) (noticed <-chan struct{}, restore func())
}

// Description is a cluster as a source can describe it.
type Description struct {
	// Name is a DNS label.
	Name string

	// Config has Host, BearerToken and TLSClientConfig.CAData. Host is https://127.0.0.1:PORT, where the suite listens;
	// the test fails if anybody connects. CAData is a certificate. Nil if the harness has NoConfig.
	Config *rest.Config

	// Labels are labels that the member has, at least. Nil if the harness has NoLabels.
	Labels map[string]string
}

// Diff says in what the member differs from the description, and "" if it does not. The fields of Config that are named
// there are compared with those of the member's Config, or of its Cluster's. A member that has other labels too does not
// differ. The text shows no credentials.
func (d Description) Diff(m fleet.Member) string {
	config := m.Config
	if m.Cluster != nil {
		config = m.Cluster.GetConfig()
	}
	switch {
	case m.Err != nil:
		return fmt.Sprintf("it is reported with the error %q", m.Err)
	case d.Config == nil:
	case config == nil:
		return "it has no config"
	case config.Host != d.Config.Host:
		return fmt.Sprintf("its host is %q, want %q", config.Host, d.Config.Host)
	case config.BearerToken != d.Config.BearerToken:
		return "it has another token than is described"
	case !bytes.Equal(config.CAData, d.Config.CAData):
		return "it has another CA than is described"
	}
	for key, value := range d.Labels {
		if got, ok := m.Labels[key]; !ok || got != value {
			return fmt.Sprintf("its label %s is %q, want %q", key, got, value)
		}
	}
	return ""
}

// patience is how long the suite waits for what must happen. It is for machines that are very busy.
const patience = time.Minute

// Run runs the suite. Each case is a test of its own, whose name says what holds. No other test may run in parallel with
// Run: goroutines are counted.
func Run(t *testing.T, h Harness) {
	t.Helper()
	suite{Harness: h, patienceFor: func(string) time.Duration { return patience }}.run(t)
}

// suite is the suite on one kind of provider.
type suite struct {
	Harness

	patienceFor func(name string) time.Duration // the case of this name
	ca          []byte                          // a certificate
}

func (s suite) run(t *testing.T) {
	t.Helper()
	if s.New == nil {
		t.Fatal("set Harness.New")
	}
	if s.Name == nil {
		s.Name = func(name string) fleet.ClusterName { return fleet.ClusterName(name) }
	}
	if s.Diff == nil {
		s.Diff = Description.Diff
	}
	s.ca = newCA(t)
	all := cases()
	for name := range s.Skip {
		if !slices.ContainsFunc(all, func(c testCase) bool { return c.name == name }) {
			t.Fatalf("Harness.Skip has %q, which is no case", name)
		}
	}
	for _, c := range all {
		passed := t.Run(c.name, func(t *testing.T) { s.runCase(t, c) })
		if c.basic && !passed {
			t.Fatalf("the other cases are not run: none can pass without %q", c.name)
		}
	}
}

func (s suite) runCase(t *testing.T, c testCase) {
	t.Helper()
	if s.Parallel && !c.basic && !c.alone {
		t.Parallel()
	}
	if why, ok := s.Skip[c.name]; ok {
		t.Skip(why)
	}
	source := s.New(t)
	if source.Provider == nil || source.Set == nil {
		t.Fatal("Harness.New returned a Source without Provider or Set")
	}
	if source.Touch == nil {
		source.Touch = source.Set
	}
	for _, need := range c.needs {
		if missing := need(s.Harness, source); missing != "" {
			t.Skip(missing)
		}
	}
	c.run(&trial{suite: s, t: t, source: source, patience: s.patienceFor(c.name)})
}
