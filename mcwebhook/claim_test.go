package mcwebhook

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// failsBy returns why a program does not install in a member, empty if it does.
func (p *program) failsBy(name mcreconcile.ClusterName) string {
	i := p.hooks.keeper.installer
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failing[name]
}

// staysWithOne fails the test if a configuration was written more often than by the one that has it, and by two that have taken it over once.
func (w *world) staysWithOne() {
	w.t.Helper()
	if c := w.configuration(w.Members[0]); c.Generation > 3 {
		w.t.Errorf("it was written %d times", c.Generation)
	}
}

func TestAProgramOfAnotherHubIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	one := w.newProgram("Fail", nil).start()
	w.isAsked(cp)
	before := w.configuration(cp)
	w.namespace = w.Local.CreateNamespace(t)
	two := w.newProgram("Fail", nil).start()
	w.eventually("the second one says so", func() bool { return two.failsBy("member-1") == "AnotherProgram" })
	left, err := two.Leave(fleet.Member{Name: "member-1", Config: cp.Config()})
	if err != nil {
		t.Fatal(err)
	}
	<-left
	if after := w.configuration(cp); after == nil || after.Generation != before.Generation || after.UID != before.UID {
		t.Errorf("the one of the first is %v", after)
	}
	w.isAsked(cp)
	if reason := one.failsBy("member-1"); reason != "" {
		t.Errorf("the first one fails: %s", reason)
	}
}

// TestReplicasWithDifferentURLsDoNotTakeTurns, without leader election.
func TestReplicasWithDifferentURLsDoNotTakeTurns(t *testing.T) {
	w := newWorld(t, 1)
	one := w.newProgram("Fail", nil).start()
	w.isAsked(w.Members[0])
	two := w.newProgram("Fail", func(o *Options) { o.URL = strings.Replace(o.URL, "127.0.0.1", "localhost", 1) }).start()
	w.eventually("the certificate is for both", func() bool {
		leaf, err := first(w.secret().Data[dataCert])
		return err == nil && leaf.VerifyHostname("localhost") == nil && leaf.VerifyHostname("127.0.0.1") == nil
	})
	w.eventually("one of them says so", func() bool {
		return one.failsBy("member-1") == "AnotherProgram" || two.failsBy("member-1") == "AnotherProgram"
	})
	w.isAsked(w.Members[0])
	w.staysWithOne()
}

func TestTwoMembersThatAreOneClusterDoNotTakeTurns(t *testing.T) {
	w := newWorld(t, 1)
	p := w.newProgram("Fail", nil).start()
	w.isAsked(w.Members[0])
	p.join(fleet.Member{Name: "alias", Config: w.Members[0].Config()})
	w.eventually("one of them says so", func() bool {
		return p.failsBy("member-1") == "AnotherProgram" || p.failsBy("alias") == "AnotherProgram"
	})
	w.staysWithOne()
}

// TestAProgramTakesOverFromItself, as it was before.
func TestAProgramTakesOverFromItself(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	first := w.newProgram("Fail", nil).start()
	w.isAsked(cp)
	first.end()
	second := w.newProgram("Fail", nil).start() // it has another URL
	w.isAsked(cp)
	second.end()
	if err := w.Local.Client().Delete(t.Context(), w.secret()); err != nil {
		t.Fatal(err)
	}
	third := w.newProgram("Fail", func(o *Options) { o.URL, o.Server = second.opts.URL, second.opts.Server }).start()
	w.isAsked(cp)
	third.end()
	s := w.secret()
	delete(s.Data, dataID) // as an earlier version has made it
	if err := w.Local.Client().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	fourth := w.newProgram("Fail", func(o *Options) { o.URL, o.Server = second.opts.URL, second.opts.Server }).start()
	w.isAsked(cp)
	w.eventually("the Secret has an ID", func() bool { return len(w.secret().Data[dataID]) > 0 })
	w.eventually("the configuration says so", func() bool {
		return strings.Contains(w.configuration(cp).Annotations[annotationProgram], string(w.secret().Data[dataID]))
	})
	if reason := fourth.failsBy("member-1"); reason != "" {
		t.Error(reason)
	}
}

// TestForgedClaimsTakeNoMemory: whoever may write a configuration may claim it as often, and by as long texts, as the API server bears.
func TestForgedClaimsTakeNoMemory(t *testing.T) {
	var taken takeovers
	for i := range 10 * mostTakeovers {
		one := takeover{"forged", mutating, claim{ID: strconv.Itoa(i)}}
		if taken.mayTake(one) != (i < mostTakeovers) {
			t.Fatalf("claim %d may be replaced: %t", i, i >= mostTakeovers)
		}
		if taken.mayTake(one) {
			taken.add(one)
		}
	}
	if other := (takeover{"other", mutating, claim{}}); !taken.mayTake(other) {
		t.Error("claims in another member may not be replaced any more")
	}
	taken.forget("forged")
	if !taken.mayTake(takeover{"forged", mutating, claim{}}) {
		t.Error("once the member was not engaged, its claims may not be replaced")
	}
	long := &unstructured.Unstructured{}
	long.SetAnnotations(map[string]string{annotationProgram: claim{URL: strings.Repeat("u", longestClaim)}.String()})
	if by := claimOf(long); by != (claim{}) {
		t.Errorf("a claim of %d bytes is read", len(by.URL))
	}
	if text := (kept{claim{URL: strings.Repeat("u", longestClaim-100) + "\x1b", Member: "\x1b"}}).Error(); len(text) > 1000 || strings.Contains(text, "\x1b") {
		t.Errorf("the error is %q", text)
	}
}
