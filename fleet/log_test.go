package fleet

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex // guards all
	all []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, strings.TrimPrefix(line, `"level"=0 `))
	}, funcr.Options{})
}

// take returns the lines since it was called last.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.all
	l.all = nil
	return taken
}

// TestEachEngagementIsLoggedWhenItBeginsAndWhenItEnds, for whatever reason.
func TestEachEngagementIsLoggedWhenItBeginsAndWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &lines{}
		f := running(t, Options{Logger: logged.logger()})
		setAs := func(identity string) {
			set(t, f, Member{Name: "a", Cluster: &existing{}, Identity: identity})
		}
		want := func(what string, lines ...string) {
			t.Helper()
			if diff := cmp.Diff(lines, logged.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		engaged := func(identity string) string {
			return `"msg"="Engaged" "cluster"="a" "attempts"=1 "identity"="` + identity + `"`
		}
		setAs("1")
		want("the first", engaged("1"))
		setAs("1")
		want("another description of the same cluster",
			`"msg"="Disengaged" "cluster"="a" "why"="the member was connected anew, as its description changed"`, engaged("1"))
		setAs("2")
		want("another cluster", `"msg"="Disengaged" "cluster"="a" "why"="another cluster answers at the member's name: \"2\", not \"1\""`, engaged("2"))
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		e.end(errors.New("the cache has stopped"))
		setAs("2")
		want("after an end by itself", `"msg"="Disengaged" "cluster"="a" "why"="the cache has stopped"`, engaged("2"))
		<-f.remove("a")
		want("removed", `"msg"="Disengaged" "cluster"="a" "why"="the member was removed"`)
	})
}

// TestMembersThatAreOneClusterAreAProblem, for as long as they are: one for each cluster.
func TestMembersThatAreOneClusterAreAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &lines{}
		f := running(t, Options{Logger: logged.logger()})
		add := func(name ClusterName, identity string) {
			set(t, f, Member{Name: name, Cluster: &existing{}, Identity: identity})
		}
		remove := func(name ClusterName) {
			<-f.remove(name)
			synctest.Wait()
		}
		want := func(when, message string) {
			t.Helper()
			got := ""
			for _, p := range f.Problems() {
				got += fmt.Sprintf("%s about %s: %s: %s", p.Provider, p.About, p.Reason, p.Message)
			}
			if message != "" {
				message = "fleet about cluster 1: Duplicate: " + message + " are one cluster: its objects are reconciled once for each. " +
					"Remove all but one, or set fleet.Options.RefuseDuplicates"
			}
			if got != message {
				t.Errorf("%s: problems %q, want %q", when, got, message)
			}
		}
		add("b", "1")
		add("x", "2")
		add("y", "")
		add("z", "")
		want("of different or unknown identities", "")
		add("a", "1")
		want("of one", `the members "a", "b"`)
		logged.take()
		add("b", "1")
		add("a", "1")
		want("after they were engaged anew", `the members "a", "b"`)
		for _, line := range logged.take() {
			if strings.Contains(line, "Discovery") {
				t.Errorf("logged though nothing has changed: %s", line)
			}
		}
		add("c", "1")
		want("of three", `the members "a", "b", "c"`)
		remove("a")
		want("of those left", `the members "b", "c"`)
		remove("c")
		want("when one is left", "")
		for i := range 12 {
			add(ClusterName(fmt.Sprintf("many-%02d", i)), "1")
		}
		want("of many", `the members "b", "many-00", "many-01", "many-02", "many-03", "many-04", "many-05", "many-06", "many-07", "many-08" and 3 more`)
	})
}
