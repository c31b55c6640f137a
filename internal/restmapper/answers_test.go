package restmapper

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// script is an API server that answers each path as it is told, with 404 to all others. It stands for answers that no
// kube-apiserver gives.
type script struct {
	mu      sync.Mutex // guards what follows
	answers map[string]string
	refused map[string]bool // paths that are answered with 500
	asked   int
}

// RoundTrip implements http.RoundTripper.
func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	body, ok := s.answers[req.URL.Path]
	code := http.StatusOK
	switch {
	case s.refused[req.URL.Path]:
		code = http.StatusInternalServerError
	case !ok:
		code = http.StatusNotFound
	}
	return &http.Response{
		StatusCode: code, Request: req, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

// newScript is a server with Pods, and with things of two versions of which it prefers the second.
func newScript() *script {
	resources := func(groupVersion, kind, plural string) string {
		return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[{"name":%q,"singularName":%q,"kind":%q}]}`,
			groupVersion, plural, strings.ToLower(kind), kind)
	}
	return &script{refused: map[string]bool{}, answers: map[string]string{
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": resources("v1", "Pod", "pods"),
		"/apis/test.dev": `{"kind":"APIGroup","name":"test.dev","versions":[{"groupVersion":"test.dev/v1","version":"v1"},` +
			`{"groupVersion":"test.dev/v2","version":"v2"}],"preferredVersion":{"groupVersion":"test.dev/v2","version":"v2"}}`,
		"/apis/test.dev/v1": resources("test.dev/v1", "Thing", "things"),
		"/apis/test.dev/v2": resources("test.dev/v2", "Thing", "things"),
	}}
}

func (s *script) mapper(t *testing.T) *Mapper {
	t.Helper()
	m, err := New(t.Context(), &rest.Config{Host: "https://scripted"}, &http.Client{Transport: s}, &Groups{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var (
	pods   = schema.GroupKind{Kind: "Pod"}
	things = schema.GroupKind{Group: testGroup, Kind: "Thing"}
)

// TestAGroupThatCannotBeAskedForIsAnErrorThatSaysWhich: it does not pass for a kind that is not served, and is asked for again.
func TestAGroupThatCannotBeAskedForIsAnErrorThatSaysWhich(t *testing.T) {
	for name, tc := range map[string]struct {
		kind schema.GroupKind
		path string
		say  string // an answer in place of the right one; empty for 500
		want string
	}{
		"the versions":                   {things, "/apis/test.dev", "", `asking which versions API group "test.dev" has: `},
		"versions that are none":         {things, "/apis/test.dev", "<html>", `asking which versions API group "test.dev" has: `},
		"the versions of the core":       {pods, "/api", "", `asking which versions API group "" has: `},
		"versions of the core, a page":   {pods, "/api", "<html>", `asking which versions API group "" has: `},
		"versions of the core, not one":  {pods, "/api", `{"kind":"APIVersions"}`, "the API server names no version"},
		"the resources of one version":   {things, "/apis/test.dev/v1", "", "asking for the resources of test.dev/v1: "},
		"resources of a version, a page": {things, "/apis/test.dev/v1", "<html>", "reading the resources of test.dev/v1: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			right := s.answers[tc.path]
			s.answers[tc.path], s.refused[tc.path] = tc.say, tc.say == ""
			m := s.mapper(t)
			_, err := m.RESTMapping(tc.kind)
			if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("RESTMapping() = %v, want an error that says %q", err, tc.want)
			}
			s.answers[tc.path], s.refused[tc.path] = right, false
			if _, err := m.RESTMapping(tc.kind); err != nil {
				t.Errorf("RESTMapping() = %v when the server answers", err)
			}
		})
	}
}

// TestAVersionThatIsRemovedWhileItsGroupIsAskedForIsLeftOut: the others are served.
func TestAVersionThatIsRemovedWhileItsGroupIsAskedForIsLeftOut(t *testing.T) {
	s := newScript()
	delete(s.answers, "/apis/test.dev/v2")
	mapping, err := s.mapper(t).RESTMapping(things)
	if err != nil || mapping.GroupVersionKind.Version != "v1" {
		t.Errorf("RESTMapping() = %+v, %v, want version v1", mapping, err)
	}
}

func TestAGroupIsAskedForOnceUntilTheMapperIsReset(t *testing.T) {
	s := newScript()
	m := s.mapper(t)
	for range 3 {
		if mapping, err := m.RESTMapping(things); err != nil || mapping.GroupVersionKind.Version != "v2" {
			t.Errorf("RESTMapping() = %+v, %v, want the preferred version", mapping, err)
		}
	}
	if s.asked != 3 { // for the group, and for each version
		t.Errorf("the server was asked %d times, want 3", s.asked)
	}
	m.Reset()
	if _, err := m.RESTMapping(things); err != nil || s.asked != 6 {
		t.Errorf("after a reset the server was asked %d times, error %v; want all once more", s.asked, err)
	}
}

// TestAGroupThatIsNotServedIsNotKept: there may be any number of names of such groups. One that is not served any more goes too.
func TestAGroupThatIsNotServedIsNotKept(t *testing.T) {
	s := newScript()
	m := s.mapper(t)
	for i := range 100 {
		if _, err := m.RESTMapping(schema.GroupKind{Group: fmt.Sprintf("g%d.dev", i), Kind: "Nothing"}); !meta.IsNoMatchError(err) {
			t.Errorf("RESTMapping() = %v, want that it is not served", err)
		}
	}
	if _, err := m.RESTMapping(things); err != nil || len(m.groups) != 1 {
		t.Errorf("%d groups are kept, want the one that is served: %v", len(m.groups), err)
	}
	delete(s.answers, "/apis/test.dev")
	if _, err := m.RESTMapping(schema.GroupKind{Group: testGroup, Kind: "Other"}); !meta.IsNoMatchError(err) || len(m.groups) > 0 {
		t.Errorf("%d groups are kept, error %v; want none", len(m.groups), err)
	}
}

// TestTheSingularOfAResourceIsThatOfAnyGroupWhichWasUsed: others are as they are.
func TestTheSingularOfAResourceIsThatOfAnyGroupWhichWasUsed(t *testing.T) {
	m := newScript().mapper(t)
	for _, gk := range []schema.GroupKind{things, pods, {Group: "nobody.dev", Kind: "Nothing"}} {
		_, _ = m.RESTMapping(gk)
	}
	for resource, want := range map[string]string{"things": "thing", "pods": "pod", "widgets": "widgets"} {
		for range 20 { // the groups are in no order
			if got, err := m.ResourceSingularizer(resource); err != nil || got != want {
				t.Fatalf("ResourceSingularizer(%q) = %q, %v, want %q", resource, got, err, want)
			}
		}
	}
}

func TestAConfigThatCannotBeUsedIsAnError(t *testing.T) {
	cfg := &rest.Config{Host: "https://one two"}
	if m, err := New(t.Context(), cfg, &http.Client{}, &Groups{}); err == nil {
		t.Errorf("New() = %v without an error", m)
	}
	cfg.Host = "https://scripted"
	if _, err := New(t.Context(), cfg, &http.Client{}, &Groups{}); err != nil || cfg.NegotiatedSerializer != nil {
		t.Errorf("error %v, or the caller's config was changed: %v", err, cfg.NegotiatedSerializer)
	}
}
