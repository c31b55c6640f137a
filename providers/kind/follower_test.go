package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
)

// scripted is an engine, and the fleet that is told of its clusters. The methods are safe for concurrent use.
type scripted struct {
	fleet fleettest.Running // logs the problems

	mu       sync.Mutex        // guards what follows
	clusters map[string]string // servers, "" while there is no kubeconfig
	missing  bool              // there is no engine
	failure  error             // of List
	hang     chan struct{}     // List waits until it is closed
	detected int
	asked    map[string]int // for kubeconfigs

	members map[fleet.ClusterName]string
	calls   []string
	log     []string
}

func (s *scripted) detect() (engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detected++
	if s.missing {
		return nil, errNoEngine
	}
	return s, nil
}

func (s *scripted) List() ([]string, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.clusters)), s.failure
}

func (s *scripted) KubeConfig(name string, internal bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
	server := s.clusters[name]
	if server == "" {
		return "", errors.New("there is no file")
	}
	if internal {
		server = "internal-" + server
	}
	return fmt.Sprintf("contexts: [{name: k, context: {cluster: k, user: k}}]\ncurrent-context: k\n"+
		"clusters: [{name: k, cluster: {server: 'https://%s'}}]\nusers: [{name: k, user: {token: t}}]", server), nil
}

func (s *scripted) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	what := ""
	if m.Err != nil {
		what = "!" + m.Err.(interface{ Reason() string }).Reason()
	} else {
		what = strings.TrimPrefix(m.Config.Host, "https://")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[m.Name] = what
	s.calls = append(s.calls, fmt.Sprintf("set %s@%s", m.Name, what))
	return nil
}

func (s *scripted) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	return nil, s.Set(m)
}

func (s *scripted) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, name)
	s.calls = append(s.calls, "remove "+string(name))
	return nil
}

func (s *scripted) SetProblem(p fleet.Problem) { s.fleet.SetProblem(p) }

// change changes the script.
func (s *scripted) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// wants checks the members.
func (s *scripted) wants(t *testing.T, want map[fleet.ClusterName]string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.members, want) {
		t.Errorf("the members are %v, want %v; the log: %q", s.members, want, s.log)
	}
}

// follow runs a follower of the engine until the test ends, which runs in a bubble.
func (s *scripted) follow(t *testing.T, p Provider) {
	t.Helper()
	s.asked, s.members = map[string]int{}, map[fleet.ClusterName]string{}
	p.Interval = DefaultInterval
	log := funcr.New(func(_, line string) { s.change(func() { s.log = append(s.log, line) }) }, funcr.Options{})
	s.fleet, _ = fleettest.Run(t, fleet.Options{Logger: log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { newFollower(p, s.detect, s).run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	synctest.Wait()
}

// nextAnswer waits until kind has been asked once more.
func nextAnswer() {
	<-time.After(DefaultInterval)
	synctest.Wait()
}

func TestClustersAreFollowed(t *testing.T) {
	s := &scripted{clusters: map[string]string{"a": "one"}}
	synctest.Test(t, func(t *testing.T) {
		s.follow(t, Provider{})
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
		s.change(func() { s.clusters["b"] = "" })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one", "b": "!NoKubeconfig"})
		s.change(func() { s.clusters["b"] = "two" })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one", "b": "two"})
		s.change(func() { delete(s.clusters, "a") })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"b": "two"})
	})
	want := []string{"set a@one", "set b@!NoKubeconfig", "set b@two", "remove a"}
	if !slices.Equal(s.calls, want) {
		t.Errorf("the calls are %q, want %q", s.calls, want)
	}
}

func TestOptionsSayWhichClustersAndHow(t *testing.T) {
	for name, tc := range map[string]struct {
		provider Provider
		want     map[fleet.ClusterName]string
	}{
		"all":      {Provider{}, map[fleet.ClusterName]string{"dev-1": "a", "dev-2": "b", "kind": "c"}},
		"by name":  {Provider{Clusters: []string{"kind", "dev-2"}}, map[fleet.ClusterName]string{"dev-2": "b", "kind": "c"}},
		"patterns": {Provider{Clusters: []string{"dev-*"}}, map[fleet.ClusterName]string{"dev-1": "a", "dev-2": "b"}},
		"missing":  {Provider{Clusters: []string{"none", "none-*"}}, map[fleet.ClusterName]string{"none": "!NoCluster"}},
		"names": {
			Provider{Clusters: []string{"kind", "none"}, Name: func(c string) fleet.ClusterName { return fleet.ClusterName("kind-" + c) }},
			map[fleet.ClusterName]string{"kind-kind": "c", "kind-none": "!NoCluster"},
		},
		"internal": {Provider{Clusters: []string{"kind"}, Internal: true}, map[fleet.ClusterName]string{"kind": "internal-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{clusters: map[string]string{"dev-1": "a", "dev-2": "b", "kind": "c"}}
			synctest.Test(t, func(t *testing.T) {
				s.follow(t, tc.provider)
				s.wants(t, tc.want)
				nextAnswer()
				s.wants(t, tc.want)
			})
			if len(s.calls) != len(tc.want) {
				t.Errorf("there were the calls %q", s.calls)
			}
		})
	}
}

func TestTheKubeconfigOfAKnownClusterIsAskedForSeldom(t *testing.T) {
	s := &scripted{clusters: map[string]string{"a": "one"}}
	synctest.Test(t, func(t *testing.T) {
		s.follow(t, Provider{})
		for range kubeconfigsEvery - 1 {
			s.change(func() { s.clusters["a"] = "anew" })
			nextAnswer()
		}
		s.change(func() {
			if s.asked["a"] != 1 {
				t.Errorf("the kubeconfig was asked for %d times, want 1", s.asked["a"])
			}
		})
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "anew"})
	})
}

func TestWithoutAnEngineNothingIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		fails, works func(s *scripted)
		says         string
	}{
		"no engine": {
			func(s *scripted) { s.missing, s.failure = true, errors.New("executable not found") },
			func(s *scripted) { s.missing, s.failure = false, nil },
			errNoEngine.Error(),
		},
		"an engine that fails": {
			func(s *scripted) { s.failure = errors.New("no daemon") },
			func(s *scripted) { s.failure = nil },
			"no daemon",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{clusters: map[string]string{"a": "one"}}
			synctest.Test(t, func(t *testing.T) {
				s.follow(t, Provider{Clusters: []string{"a*", "b"}})
				s.wants(t, map[fleet.ClusterName]string{"a": "one", "b": "!NoCluster"})
				s.change(func() { tc.fails(s) })
				for range 3 {
					nextAnswer()
				}
				s.wants(t, map[fleet.ClusterName]string{"a": "!NoEngine", "b": "!NoEngine"})
				if all := s.fleet.Problems(); len(all) != 1 || all[0].Reason != ReasonNoEngine || !strings.Contains(all[0].Message, tc.says) {
					t.Errorf("the problems are %+v, want one that says %q", all, tc.says)
				}
				s.change(func() { tc.works(s); s.clusters["b"] = "two" })
				nextAnswer()
				s.wants(t, map[fleet.ClusterName]string{"a": "one", "b": "two"})
			})
			if slices.ContainsFunc(s.calls, func(call string) bool { return strings.HasPrefix(call, "remove") }) {
				t.Errorf("there was a removal: %q", s.calls)
			}
			if s.count("there is a problem") != 1 || s.count("a problem has ended") != 1 {
				t.Errorf("the log does not say once what is wrong and once that it is over: %q", s.log)
			}
		})
	}
}

func TestAClusterThatGoesWhileTheEngineFailsIsWithdrawnAfterwards(t *testing.T) {
	s := &scripted{clusters: map[string]string{"a": "one", "b": "two"}}
	synctest.Test(t, func(t *testing.T) {
		s.follow(t, Provider{})
		s.change(func() { s.failure = errors.New("no daemon") })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "!NoEngine", "b": "!NoEngine"})
		s.change(func() { s.failure = nil; delete(s.clusters, "b") })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
	})
}

// count counts the lines of the log that have the text.
func (s *scripted) count(text string) (n int) {
	for _, line := range s.log {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestAnEngineIsWaitedFor(t *testing.T) {
	s := &scripted{clusters: map[string]string{"a": "one"}, missing: true}
	synctest.Test(t, func(t *testing.T) {
		s.follow(t, Provider{Clusters: []string{"a"}})
		s.wants(t, map[fleet.ClusterName]string{"a": "!NoEngine"})
		nextAnswer()
		s.change(func() { s.missing = false })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
		nextAnswer()
		s.change(func() {
			if s.detected != 3 {
				t.Errorf("engines were looked for %d times, want 3", s.detected)
			}
		})
	})
}

func TestAnEngineThatHangsIsSaidAndHoldsUpTheEndForSecondsAlone(t *testing.T) {
	s := &scripted{clusters: map[string]string{"a": "one"}}
	synctest.Test(t, func(t *testing.T) {
		s.follow(t, Provider{})
		hang := make(chan struct{})
		s.change(func() { s.hang = hang })
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
		<-time.After(answerPatience)
		synctest.Wait()
		s.wants(t, map[fleet.ClusterName]string{"a": "!NoEngine"})
		again := make(chan struct{})
		s.change(func() { s.hang = again })
		close(hang) // the late answer counts, whatever becomes of the next
		synctest.Wait()
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
		s.change(func() { s.hang = nil })
		close(again)
		nextAnswer()
		s.wants(t, map[fleet.ClusterName]string{"a": "one"})
	})

	synctest.Test(t, func(t *testing.T) {
		hanging := &scripted{hang: make(chan struct{})}
		defer close(hanging.hang)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		hanging.fleet, _ = fleettest.Run(t, fleet.Options{})
		newFollower(Provider{Interval: DefaultInterval}, hanging.detect, hanging).run(ctx)
		if took := time.Since(begun); took != endPatience {
			t.Errorf("the end took %s, want %s", took, endPatience)
		}
	})
}
