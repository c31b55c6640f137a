package mcwebhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// annotationProgram has the claim, on configurations in members.
const annotationProgram = "webhooks.fleet-runtime.dev/program"

// claim says by what a configuration is kept. Two that keep the same one would take turns in writing it otherwise: programs with the same
// [Options.Name], replicas that are told different URLs, or two members that are one cluster.
type claim struct {
	ID     string                  `json:"id"` // is in the Secret, and so the same for all replicas
	URL    string                  `json:"url"`
	Member mcreconcile.ClusterName `json:"member"`
}

// longestClaim is how many bytes of a claim are read, which others may have written. A URL has about 250, and the name of a member 317.
const longestClaim = 4096

// claimOf returns the claim of a configuration, zero if it has none that can be read.
func claimOf(live *unstructured.Unstructured) (c claim) {
	text := live.GetAnnotations()[annotationProgram]
	if len(text) > longestClaim || json.Unmarshal([]byte(text), &c) != nil {
		return claim{}
	}
	return c
}

// String returns the value of the annotation.
func (c claim) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // strings never fail
	}
	return string(text)
}

// mayFollow reports whether c may be what comes after another claim: after a URL or the name of a member was changed, or the Secret was lost.
func (c claim) mayFollow(other claim) bool {
	return other == claim{} || c.ID == other.ID || c.URL == other.URL
}

// kept is the error of a configuration that something else keeps.
type kept struct{ by claim }

// Error implements error.
func (k kept) Error() string {
	return fmt.Sprintf("it is kept for the member %.317q by a program with the URL %.317q: set another mcwebhook.Options.Name in one of them, or delete it if that one is gone",
		string(k.by.Member), k.by.URL)
}

// Reason is that of the metric.
func (kept) Reason() string { return "AnotherProgram" }

// takeovers are the claims that were replaced. Each is replaced once while a member is engaged: what claims a configuration again is at work.
// A member in which there were too many is left to the others. The zero value has none. It is safe for concurrent use.
type takeovers struct {
	mu sync.Mutex // guards of
	of map[takeover]bool
}

type takeover struct {
	member mcreconcile.ClusterName
	kind   string
	from   claim
}

// mostTakeovers are those of a member, of which any may be forged.
const mostTakeovers = 64

// mayTake reports whether a claim may be replaced.
func (t *takeovers) mayTake(one takeover) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[one] {
		return false
	}
	of := 0
	for other := range t.of {
		if other.member == one.member {
			of++
		}
	}
	return of < mostTakeovers
}

func (t *takeovers) add(one takeover) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[takeover]bool{}
	}
	t.of[one] = true
}

// forget is for a member that is not engaged any more.
func (t *takeovers) forget(member mcreconcile.ClusterName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.of, func(one takeover, _ bool) bool { return one.member == member })
}
