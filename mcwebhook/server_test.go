package mcwebhook

import (
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// TestOneObjectHasAnotherVerdictInEachCluster: the handler reads from the cluster that asks.
func TestOneObjectHasAnotherVerdictInEachCluster(t *testing.T) {
	w := newWorld(t, 2)
	w.newProgram("Fail", nil).start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	for _, cp := range w.Members {
		for _, other := range w.Members {
			cm, err := w.write(cp, other.Name)
			switch {
			case cp == other && (err == nil || !strings.Contains(err.Error(), "forbidden by "+cp.Name)):
				t.Errorf("what %s forbids was written there: %v", cp.Name, err)
			case cp != other && err != nil:
				t.Errorf("what %s forbids in %s: %v", other.Name, cp.Name, err)
			case cp != other && cm.Data["cluster"] != cp.Name:
				t.Errorf("an object of %s was given %v", cp.Name, cm.Data)
			}
		}
	}
}

// TestForgedPathsHaveOneAnswer that tells nothing, and cost neither series nor goroutines.
func TestForgedPathsHaveOneAnswer(t *testing.T) {
	w := newWorld(t, 2)
	p := w.newProgram("Fail", nil).start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	const validate = "/validate--v1-configmap"
	right := p.path("member-1", validate)
	if code, answer := p.call(right); code != http.StatusOK {
		t.Fatalf("the right path: %s", answer)
	}
	p.join(fleet.Member{Name: "broken", Err: errors.New("it does not parse")})
	key := p.hooks.keeper.store.now.Load().key
	member2 := p.path("member-2", validate)
	forged := map[string]string{
		"a key of another member":      strings.Replace(right, "/member-1/", "/member-2/", 1),
		"another member's identity":    "/c/member-1/" + strings.SplitN(member2, "/", 4)[3],
		"a member that is not there":   strings.Replace(right, "/member-1/", "/member-9/", 1),
		"one that was never there":     caller{"member-9", "", validate}.path(key),
		"another cluster of that name": caller{"member-1", "another", validate}.path(key),
		"a key of another secret":      caller{"member-1", "", validate}.path(newKey()),
		"another path":                 p.path("member-1", "/validate"),
		"no key":                       "/c/member-1" + validate,
		"no member":                    "/c/",
		"the local cluster":            caller{"", "", validate}.path(key),
		"a path of the local cluster":  validate,
		"the right one, cut":           right[:len(right)-1],
	}
	_, nothing := p.call("/c/x/y/z")
	for what, path := range forged {
		if code, answer := p.call(path); code != http.StatusNotFound || answer != nothing {
			t.Errorf("%s: %q, want %q", what, answer, nothing)
		}
	}
	if code, answer := p.call(caller{"broken", "", validate}.path(key)); code != http.StatusServiceUnavailable {
		t.Errorf("a member that is not ready: %s", answer)
	}
	before, goroutines := series(t), runtime.NumGoroutine()
	for i := range 1000 {
		path := "/c/member-" + strconv.Itoa(i) + "/" + strconv.Itoa(i) + ".key/path-" + strconv.Itoa(i)
		if code, answer := p.call(path); code != http.StatusNotFound {
			t.Fatal(answer)
		}
	}
	if after := series(t); after != before {
		t.Errorf("there were %d series, and are %d", before, after)
	}
	w.eventually("no goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines+20 })
}

// series returns how many series the webhooks have.
func series(t *testing.T) (count int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.Contains(family.GetName(), "webhook") {
			count += len(family.GetMetric())
		}
	}
	return count
}
