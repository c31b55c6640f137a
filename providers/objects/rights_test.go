package objects_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func mayReadSecrets(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs}
}

// secretsIn is what the problem of a watch is about.
func secretsIn(ns namespace, label string) string {
	return "Secret objects in namespace " + ns.string + " with " + label + "=true"
}

func TestMissingRightsAreAProblemAndWaitedFor(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	ns.secret("secret", map[string]string{"a": "1"}, ours)
	local := startLocal(t, cp.AddUser(t, "manager"))
	messages, r := newMessages(), newRecording()
	t.Cleanup(startWith(messages.context(t.Context()), t, local, provider(ns.string), r))
	for _, label := range []string{ours, theirs} {
		r.waitForProblem(t, secretsIn(ns, label),
			"Forbidden: ", "grant the manager get, list and watch", `User "manager" cannot list resource "secrets"`)
	}
	cp.AddUser(t, "manager", mayReadSecrets("get", "list"))
	r.waitForProblem(t, secretsIn(ns, ours), `User "manager" cannot watch resource "secrets"`)
	cp.AddUser(t, "manager", mayReadSecrets("get", "list", "watch"))
	r.waitForHosts(t, hosts{"a": "1"})
	r.waitForProblem(t, secretsIn(ns, ours))
	r.waitForProblem(t, secretsIn(ns, theirs))
	if lines := messages.all(); len(lines) > 0 {
		t.Errorf("this was logged beside the problem:\n%s", strings.Join(lines, "\n"))
	}
}

func TestRightsInOneNamespaceDiscoverItsObjects(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	mine, foreign := newNamespace(t, cp), newNamespace(t, cp)
	mine.secret("secret", map[string]string{"a": "1"}, ours)
	foreign.secret("secret", map[string]string{"x": "1"}, ours)
	local := startLocal(t, cp.AddUser(t, "manager"))
	meta := metav1.ObjectMeta{Namespace: mine.string, Name: "manager"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{mayReadSecrets("get", "list", "watch")}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "manager"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager"}},
		},
	} {
		if err := cp.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}

	p := provider(mine.string)
	p.Namespaces = append(p.Namespaces, foreign.string)
	r := newRecording()
	t.Cleanup(startWith(t.Context(), t, local, p, r))
	r.waitForHosts(t, hosts{"a": "1"})
	r.waitForProblem(t, secretsIn(foreign, ours), "Forbidden")
	r.waitForProblem(t, secretsIn(mine, ours))
}

func TestWithoutTheRightToGetMembersAreStillRemoved(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	r := start(t, cp.AddUser(t, "manager", mayReadSecrets("list", "watch")), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	update(ns, secret, func(s *corev1.Secret) { delete(s.Labels, ours) })
	r.waitForHosts(t, hosts{})
}

// requests keeps the lists and watches of Secrets that were asked for.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex // guards what follows
	urls []string
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/secrets") {
		r.mu.Lock()
		r.urls = append(r.urls, req.URL.String())
		r.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

func TestTheServerSendsOnlyWhatIsSelected(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	ns.secret("secret", map[string]string{"a": "1"}, ours)
	config, seen := cp.Config(), &requests{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	r := start(t, config, provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.urls) < 2 {
		t.Errorf("there are too few requests: %q", seen.urls)
	}
	for _, url := range seen.urls {
		if !strings.Contains(url, "/namespaces/"+ns.string+"/secrets?") || !strings.Contains(url, "labelSelector=") {
			t.Errorf("a request is not limited: %s", url)
		}
	}
}

func TestAProviderThatCanNeverWorkSaysSo(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	local := startLocal(t, cp.Config())
	empty, err := cluster.New(cp.Config(), func(o *cluster.Options) { o.Scheme = runtime.NewScheme() })
	if err != nil {
		t.Fatal(err)
	}
	keys := func(client.Object) []client.ObjectKey { return nil }
	for name, tc := range map[string]struct {
		change func(p *objects.Provider[*corev1.Secret])
		local  cluster.Cluster
		want   string
	}{
		"a selector of namespaces beside namespaces": {
			func(p *objects.Provider[*corev1.Secret]) { p.NamespaceSelector = labelled(ours) }, local, "NamespaceSelector",
		},
		"no Members":      {func(p *objects.Provider[*corev1.Secret]) { p.Members = nil }, local, "Provider.Members"},
		"no Object":       {func(p *objects.Provider[*corev1.Secret]) { p.Object = nil }, local, "Provider.Object"},
		"an unknown kind": {func(*objects.Provider[*corev1.Secret]) {}, empty, "scheme"},
		"Also without an object": {
			func(p *objects.Provider[*corev1.Secret]) { p.Also = []objects.Also{{Keys: keys}} }, local, "Also.Object",
		},
		"Also without keys": {
			func(p *objects.Provider[*corev1.Secret]) { p.Also = []objects.Also{{Object: &corev1.ConfigMap{}}} }, local, "Also.Keys",
		},
		"Also with one kind twice": {
			func(p *objects.Provider[*corev1.Secret]) {
				p.Also = []objects.Also{{Object: &corev1.ConfigMap{}, Keys: keys}, {Object: &corev1.ConfigMap{}, Keys: keys}}
			}, local, "twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := provider("default")
			tc.change(&p)
			if err := p.Run(t.Context(), tc.local, newRecording()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one about %s", err, tc.want)
			}
		})
	}
}
