package mctest_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// podReader is what these tests begin with.
const podReader = `# Written by hand.
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: apps}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader, labels: {a: b}}
rules:
- apiGroups: [""]
  resources: [pods] # of users
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: apps}]
`

// TestRightsThatDriftFailTheSuite and are named.
func TestRightsThatDriftFailTheSuite(t *testing.T) {
	listsPods := func(t *testing.T, a *mctest.Account) {
		t.Helper()
		must(t, clientOf(t, a.Config()).List(t.Context(), &corev1.PodList{}))
		watch(t, a)
	}
	for name, tc := range map[string]struct {
		manifest string
		rights   mctest.Rights
		use      []func(*testing.T, *mctest.Account) // one for each test of the suite
		says     string                              // nothing: all is well
	}{
		"none is missing, and none is too much": {podReader, mctest.Rights{}, []func(*testing.T, *mctest.Account){listsPods}, ""},
		"a watch alone needs a list too":        {podReader, mctest.Rights{}, []func(*testing.T, *mctest.Account){watch}, ""},
		"several tests add up": {
			strings.Replace(podReader, "pods", "pods, nodes", 1), mctest.Rights{}, []func(*testing.T, *mctest.Account){listsPods, listsNodes, watchesNodes}, "",
		},
		"one is too much": {
			strings.Replace(podReader, "[list, watch]", "[get, list, watch]", 1),
			mctest.Rights{},
			[]func(*testing.T, *mctest.Account){listsPods, listsPods},
			"get pods, of the ClusterRole reader: nobody has asked for it",
		},
		"one that is declared": {
			strings.Replace(podReader, "[list, watch]", "[get, list, watch]", 1),
			mctest.Rights{Needed: map[string]string{"get pods": "a debugger"}},
			[]func(*testing.T, *mctest.Account){listsPods},
			"",
		},
		"one that is refused on purpose": {
			podReader,
			mctest.Rights{Refused: map[string]string{"list nodes": "the program asks whether it may"}},
			[]func(*testing.T, *mctest.Account){listsPods, triesNodes},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rights.File = write(t, tc.manifest)
			code, said := suite(t, func(p *mctest.Pool) int {
				for i, use := range tc.use {
					t.Run(fmt.Sprint("test ", i), func(t *testing.T) {
						use(t, p.Start(t, mctest.Options{}).Local.RecordRights(t, tc.rights))
					})
				}
				return 0
			})
			if (code == 0) != (tc.says == "") || !strings.Contains(said, tc.says) || tc.says == "" && said != "" {
				t.Errorf("the suite ends with %d, and says %q, want %q", code, said, tc.says)
			}
		})
	}
}

func TestARightThatIsMissingFailsTheTestThatNeedsIt(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	tb := &recorder{TB: t}
	a := cp.RecordRights(tb, mctest.Rights{
		File:   write(t, podReader),
		Needed: map[string]string{"list pods": "of no concern here", "watch pods": "of no concern here"},
	})
	triesNodes(t, a)
	for range 2 { // once is enough to be named once
		err := clientOf(t, a.Config()).Get(t.Context(), client.ObjectKey{Namespace: "apps", Name: "a"}, &corev1.Secret{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("getting a Secret returned %v, want that it is forbidden", err)
		}
	}
	tb.end()
	for _, want := range []string{"\tlist nodes\n", "\tget secrets in apps\n", "MCTEST_RIGHTS=update"} {
		if strings.Count(tb.said, want) != 1 {
			t.Errorf("the test says %q, want that %q is in it once", tb.said, want)
		}
	}
}

func TestWhatIsTooMuchIsNotToldOfAPartOfTheSuite(t *testing.T) {
	file := write(t, podReader)
	run := func(t *testing.T, code int) string {
		t.Helper()
		_, said := suite(t, func(p *mctest.Pool) int {
			t.Run("test", func(t *testing.T) { p.Start(t, mctest.Options{}).Local.RecordRights(t, mctest.Rights{File: file}) })
			return code
		})
		return said
	}
	if said := run(t, 1); said != "" {
		t.Errorf("a suite that fails says %q", said)
	}
	if said := run(t, 0); said == "" {
		t.Error("the whole suite says nothing")
	}
}

// TestManifestsAreUpdated to what the suite needs, and keep what was written by hand.
func TestManifestsAreUpdated(t *testing.T) {
	t.Setenv("MCTEST_RIGHTS", "update")
	file := write(t, strings.Replace(podReader, "[list, watch]", "[get, list]", 1))
	r := mctest.Rights{File: file}
	code, said := suite(t, func(p *mctest.Pool) int {
		t.Run("test", func(t *testing.T) {
			a := p.Start(t, mctest.Options{}).Local.RecordRights(t, r)
			watch(t, a)
			cl := clientOf(t, a.Config())
			must(t, cl.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "a"}}))
			must(t, cl.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}))
		})
		return 0
	})
	if code != 0 || !strings.Contains(said, "changed "+file) {
		t.Errorf("the suite ends with %d, and says %q", code, said)
	}
	want := strings.Replace(podReader, "verbs: [list, watch]\n", `verbs: [list, watch]
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
`, 1) + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  namespace: apps
  name: reader
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  namespace: apps
  name: reader
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: reader
subjects:
- kind: ServiceAccount
  namespace: apps
  name: reader
`
	if diff := cmp.Diff(want, read(t, file)); diff != "" {
		t.Errorf("the manifest differs (-want, +got):\n%s", diff)
	}
}

// TestAManifestThatIsNotThereIsWritten, and its roles are bound to an account of the test's own from then on.
func TestAManifestThatIsNotThereIsWritten(t *testing.T) {
	r := mctest.Rights{File: filepath.Join(t.TempDir(), "rbac", "member.yaml")}
	if said := fails(t, r); !strings.Contains(said, "MCTEST_RIGHTS=update writes it") {
		t.Errorf("a manifest that is not there says %q", said)
	}
	run := func(t *testing.T) {
		t.Helper()
		code, said := suite(t, func(p *mctest.Pool) int {
			t.Run("test", func(t *testing.T) {
				a := p.Start(t, mctest.Options{}).Local.RecordRights(t, r)
				cl := clientOf(t, a.Config())
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
				must(t, cl.Patch(t.Context(), cm, client.Apply, client.FieldOwner("test"))) //nolint:staticcheck // typed
				must(t, cl.Create(t.Context(), &eventsv1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, EventTime: metav1.NowMicro(), ReportingController: "c", ReportingInstance: "c",
					Action: "a", Reason: "r", Type: "Normal",
				}))
				listsNodes(t, a)
			})
			return 0
		})
		if code != 0 {
			t.Errorf("the suite ends with %d, and says %q", code, said)
		}
	}
	t.Run("written", func(t *testing.T) {
		t.Setenv("MCTEST_RIGHTS", "update")
		run(t)
	})
	want := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: member
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  namespace: default
  name: member
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
`
	if diff := cmp.Diff(want, read(t, r.File)); diff != "" {
		t.Errorf("the manifest differs (-want, +got):\n%s", diff)
	}
	t.Run("used", run)
}

// TestAHundredTestsAtOnce add up, and none of them takes what another one asked for to be its own.
func TestAHundredTestsAtOnce(t *testing.T) {
	const tests = 100
	resources := []string{"pods", "nodes", "services", "endpoints", "secrets", "configmaps", "serviceaccounts", "limitranges", "resourcequotas", "namespaces"}
	r := mctest.Rights{File: write(t, strings.Replace(podReader, "[pods]", "["+strings.Join(resources, ", ")+"]", 1))}
	code, said := suite(t, func(p *mctest.Pool) int {
		t.Run("tests", func(t *testing.T) {
			for i := range tests {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					a := p.Share(t, mctest.Options{}).RecordRights(t, r)
					get(t, a.Config(), "/api/v1/"+resources[i%len(resources)]+"?watch=true")
				})
			}
		})
		return 0
	})
	if code != 0 {
		t.Errorf("the suite ends with %d, and says %q", code, said)
	}
}

func TestRightsThatCannotBeRecordedSayWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		rights mctest.Rights
		want   string
	}{
		"no file":               {mctest.Rights{File: filepath.Join(t.TempDir(), "none.yaml")}, "no such file"},
		"no reason":             {mctest.Rights{File: write(t, podReader), Needed: map[string]string{"get pods": " "}}, "no reason"},
		"no right":              {mctest.Rights{File: write(t, podReader), Refused: map[string]string{"pods": "x"}}, `reading the right "pods"`},
		"aliases":               {mctest.Rights{File: write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: &a b, namespace: *a}\n")}, "aliases"},
		"another account bound": {mctest.Rights{File: write(t, strings.Replace(podReader, "name: reader, namespace: apps}]", "name: other, namespace: apps}]", 1))}, "bindings do not give it"},
		"no object":             {mctest.Rights{File: write(t, "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a}\n")}, "creating the Foo a"},
	} {
		t.Run(name, func(t *testing.T) {
			if said := fails(t, tc.rights); !strings.Contains(said, tc.want) || !strings.Contains(said, tc.rights.File) {
				t.Errorf("the test says %q, want %q", said, tc.want)
			}
		})
	}
}

func TestAnAccountHasTheRightsOfOneManifest(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	tb := &recorder{TB: t}
	defer tb.end()
	cp.RecordRights(tb, mctest.Rights{File: write(t, podReader), Needed: map[string]string{"* *.*": "nothing is asked for"}})
	if said := tb.fails(func() { cp.RecordRights(tb, mctest.Rights{File: write(t, podReader)}) }); !strings.Contains(said, "could not be told") {
		t.Errorf("the test says %q", said)
	}
}

// TestWhatIsAskedForAsSomebodyElse needs the right to impersonate, and no other.
func TestWhatIsAskedForAsSomebodyElse(t *testing.T) {
	t.Setenv("MCTEST_RIGHTS", "update")
	a := pool.Start(t, mctest.Options{}).Local.RecordRights(t, mctest.Rights{File: filepath.Join(t.TempDir(), "file.yaml"), Needed: map[string]string{"get pods": "so that the pool has nothing to say"}})
	config := a.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"devs", "system:masters"}}
	listsNodesAs(t, config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:p"}
	if err := clientOf(t, config).List(t.Context(), &corev1.NodeList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the error is %v, want that it is forbidden", err)
	}
	want := []string{"impersonate groups", "impersonate serviceaccounts in apps", "impersonate users"}
	if diff := cmp.Diff(want, a.Asked(t)); diff != "" {
		t.Errorf("asked for differs (-want, +got):\n%s", diff)
	}
}

// suite runs a suite with a pool of its own, and returns how it ends, and what it says. It is as if all tests were chosen.
func suite(t *testing.T, run func(*mctest.Pool) int) (code int, said string) {
	t.Helper()
	for _, name := range []string{"test.run", "test.skip", "test.short"} {
		before := flag.Lookup(name).Value.String()
		none := map[bool]string{true: "false"}[name == "test.short"]
		must(t, flag.Set(name, none))
		defer func() { must(t, flag.Set(name, before)) }()
	}
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	must(t, err)
	os.Stderr = file
	var p mctest.Pool
	code = p.Run(runner(func() int { return run(&p) }))
	must(t, file.Close())
	return code, read(t, file.Name())
}

type runner func() int

func (r runner) Run() int { return r() }

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	said     string
	cleanups []func()
}

var errFatal = errors.New("the test has ended")

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }
func (r *recorder) Fatal(args ...any)                 { r.said += fmt.Sprint(args...); panic(errFatal) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.said += fmt.Sprintf(format, args...)
	panic(errFatal)
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end ends the test.
func (r *recorder) end() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

// fails runs f, which ends the test, and returns what the test says.
func (r *recorder) fails(f func()) (said string) {
	defer func() {
		if got := recover(); got != any(errFatal) {
			r.Error("the test goes on, or:", got)
		}
		said = r.said
	}()
	f()
	return ""
}

// fails returns what a test says that cannot record rights.
func fails(t *testing.T, r mctest.Rights) string {
	t.Helper()
	tb := &recorder{TB: t}
	cp := pool.Start(t, mctest.Options{}).Local
	return tb.fails(func() { cp.RecordRights(tb, r) })
}

func watch(t *testing.T, a *mctest.Account) {
	t.Helper()
	get(t, a.Config(), "/api/v1/pods?watch=true")
}

func watchesNodes(t *testing.T, a *mctest.Account) {
	t.Helper()
	get(t, a.Config(), "/api/v1/nodes?watch=true")
}

func listsNodes(t *testing.T, a *mctest.Account) {
	t.Helper()
	listsNodesAs(t, a.Config())
}

func listsNodesAs(t *testing.T, config *rest.Config) {
	t.Helper()
	must(t, clientOf(t, config).List(t.Context(), &corev1.NodeList{}))
}

func triesNodes(t *testing.T, a *mctest.Account) {
	t.Helper()
	if err := clientOf(t, a.Config()).List(t.Context(), &corev1.NodeList{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Nodes returned %v, want that it is forbidden", err)
	}
}

// get asks for a path, and returns when the answer has begun.
func get(t *testing.T, config *rest.Config, path string) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, http.NoBody)
	must(t, err)
	resp, err := httpClient.Do(req)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(resp.Body)
		t.Errorf("%s returned %s: %s", path, resp.Status, content)
	}
	must(t, resp.Body.Close())
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	cl, err := client.New(config, client.Options{})
	must(t, err)
	return cl
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rights.yaml")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return string(content)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
