package kubeconfig_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// report is what a provider said: a member, or the name of one that it removed.
type report struct {
	set     fleet.Member
	removed fleet.ClusterName
}

// reports is a [fleet.Members] that passes on what is reported.
type reports chan report

func (r reports) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	m, err := m.Loaded()
	if err != nil {
		return nil //nolint:nilerr // it is outdated: another description follows
	}
	r <- report{set: m}
	return nil
}

func (r reports) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	return nil, r.Set(m)
}

func (r reports) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	r <- report{removed: name}
	return nil
}

func (r reports) SetProblem(fleet.Problem) {}

// any returns the next report, whatever it is.
func (r reports) any(t *testing.T, want any) report {
	t.Helper()
	select {
	case next := <-r:
		return next
	case <-time.After(patience):
		t.Fatalf("nothing was reported, want %v", want)
		return report{}
	}
}

// next returns the next report of the member. It fails the test over any other.
func (r reports) next(t *testing.T, name fleet.ClusterName) fleet.Member {
	t.Helper()
	got := r.any(t, name)
	if got.set.Name != name {
		t.Fatalf("%q was reported and %q was removed, want %q to be reported", got.set.Name, got.removed, name)
	}
	return got.set
}

// nextRemoved waits for the removal of the member. It fails the test over any other report.
func (r reports) nextRemoved(t *testing.T, name fleet.ClusterName) {
	t.Helper()
	if got := r.any(t, name); got.removed != name {
		t.Fatalf("%q was reported and %q was removed, want %q to be removed", got.set.Name, got.removed, name)
	}
}

// servers are members and where they lead, or what is wrong with them.
type servers = map[fleet.ClusterName]string

// follow takes in reports until they have come to what is wanted. known is what they had come to before. A Secret that
// has several formats is watched several times, and may be reported more than once.
func (r reports) follow(t *testing.T, known, want servers) {
	t.Helper()
	for !maps.Equal(known, want) {
		switch got := r.any(t, want); {
		case got.removed != "":
			delete(known, got.removed)
		case got.set.Err != nil:
			known[got.set.Name] = got.set.Err.Error()
		default:
			known[got.set.Name] = got.set.Config.Host
		}
	}
}

// start runs the provider against the cluster until the test ends.
func start(t *testing.T, cp *mctest.ControlPlane, p kubeconfig.Provider) reports {
	t.Helper()
	local := startLocal(t, cp.Config())
	r := make(reports, 1000)
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context(), local, r) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// startLocal starts what a manager would start for its local cluster, until the test ends.
func startLocal(t *testing.T, config *rest.Config) cluster.Cluster {
	t.Helper()
	local, err := cluster.New(config, func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- local.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return local
}

func create(t *testing.T, cp *mctest.ControlPlane, namespace, name string, data map[string][]byte, labels ...string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Data:       data,
	}
	for _, label := range labels {
		secret.Labels[label] = "true"
	}
	if err := cp.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func update(t *testing.T, cp *mctest.ControlPlane, secret *corev1.Secret, change func(*corev1.Secret)) {
	t.Helper()
	before := secret.DeepCopy()
	change(secret)
	if err := cp.Client().Patch(t.Context(), secret, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func withKey(key string, kubeconfig []byte) map[string][]byte {
	return map[string][]byte{key: kubeconfig}
}

// TestTheZeroValueLooksInTheManagersOwnNamespace: a right to write Secrets elsewhere must not be one to add clusters.
func TestTheZeroValueLooksInTheManagersOwnNamespace(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	own := cp.CreateNamespace(t)
	t.Setenv("POD_NAMESPACE", own)
	data := withKey(kubeconfig.DefaultKey, write(t, newKubeconfig()))
	create(t, cp, cp.CreateNamespace(t), "elsewhere", data, kubeconfig.Label)
	create(t, cp, own, "east", data, kubeconfig.Label)
	r := start(t, cp, kubeconfig.Provider{})
	r.next(t, "east")
	create(t, cp, cp.CreateNamespace(t), "later", data, kubeconfig.Label)
	create(t, cp, own, "west", data, kubeconfig.Label)
	r.next(t, "west")
}

func TestSecretsOfSeveralNamespacesAreNamedAfterTheirs(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	here, there := cp.CreateNamespace(t), cp.CreateNamespace(t)
	data := withKey(kubeconfig.DefaultKey, write(t, newKubeconfig()))
	create(t, cp, cp.CreateNamespace(t), "elsewhere", data, kubeconfig.Label)
	r := start(t, cp, kubeconfig.Provider{Namespaces: []string{here, there}})
	for _, ns := range []string{here, there} {
		create(t, cp, ns, "east", data, kubeconfig.Label)
		r.next(t, fleet.ClusterName(ns+"/east"))
	}
}

func TestSecretsCountInNamespacesThatTheSelectorMatches(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-", Labels: map[string]string{"mine": "true"}}}
	if err := cp.Client().Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	data := withKey(kubeconfig.DefaultKey, write(t, newKubeconfig()))
	create(t, cp, cp.CreateNamespace(t), "elsewhere", data, kubeconfig.Label)
	create(t, cp, tenant.Name, "east", data, kubeconfig.Label)
	r := start(t, cp, kubeconfig.Provider{NamespaceSelector: mine})
	r.next(t, fleet.ClusterName(tenant.Name+"/east"))
	create(t, cp, cp.CreateNamespace(t), "later", data, kubeconfig.Label)
	create(t, cp, tenant.Name, "west", data, kubeconfig.Label)
	r.next(t, fleet.ClusterName(tenant.Name+"/west"))
}

func TestLabelledSecretsOfAllNamespacesAreFollowed(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp, member := f.Local, f.Members[0]
	here, there := cp.CreateNamespace(t), cp.CreateNamespace(t)
	data := withKey(kubeconfig.DefaultKey, member.Kubeconfig())
	r := start(t, cp, kubeconfig.Provider{AllNamespaces: true})

	ours := create(t, cp, here, "east", data, kubeconfig.Label)
	m := r.next(t, fleet.ClusterName(here+"/east"))
	if m.Err != nil || m.Labels[kubeconfig.Label] != "true" {
		t.Fatalf("got %v with labels %v", m.Err, m.Labels)
	}
	remote, err := client.New(m.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	marker := member.CreateNamespace(t)
	if err := remote.Get(t.Context(), client.ObjectKey{Name: marker}, &corev1.Namespace{}); err != nil {
		t.Errorf("the config does not lead to the member: %v", err)
	}

	create(t, cp, there, "east", data, kubeconfig.MulticlusterRuntimeLabel)
	r.next(t, fleet.ClusterName(there+"/east"))
	create(t, cp, here, "unlabelled", data)

	update(t, cp, ours, func(s *corev1.Secret) { s.Labels["tier"] = "test" })
	again := r.next(t, m.Name)
	if again.Revision != m.Revision || again.Labels["tier"] != "test" {
		t.Errorf("after a new label: revision %s, before %s; labels %v", again.Revision, m.Revision, again.Labels)
	}
	update(t, cp, ours, func(s *corev1.Secret) { delete(s.Data, kubeconfig.DefaultKey) })
	r.nextRemoved(t, m.Name)
	waitForEvent(t, cp, ours, "NoMember", `no key "kubeconfig"`)
}

func TestOptionsSayWhereToLookAndHowToName(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	config := newKubeconfig()
	for name, tc := range map[string]struct {
		provider func(namespace string) kubeconfig.Provider
		key      string
		label    string
		want     func(namespace string) fleet.ClusterName
		server   string
	}{
		"one namespace": {
			func(ns string) kubeconfig.Provider { return kubeconfig.Provider{Namespace: ns} },
			"kubeconfig", kubeconfig.Label,
			func(string) fleet.ClusterName { return "secret" }, "https://east.example.com:6443",
		},
		"a label and a key of one's own": {
			func(ns string) kubeconfig.Provider {
				return kubeconfig.Provider{
					Namespace: ns, Key: "value", Selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{"mine": "true"})},
				}
			},
			"value", "mine",
			func(string) fleet.ClusterName { return "secret" }, "https://east.example.com:6443",
		},
		"a name and a context of one's own": {
			func(ns string) kubeconfig.Provider {
				return kubeconfig.Provider{
					Namespace: ns,
					Name:      func(_ *corev1.Secret, name string) fleet.ClusterName { return fleet.ClusterName("my-" + name) },
					Context:   func(*corev1.Secret) string { return "other" },
				}
			},
			"kubeconfig", kubeconfig.Label,
			func(string) fleet.ClusterName { return "my-secret" }, "https://west.example.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := cp.CreateNamespace(t)
			create(t, cp, cp.CreateNamespace(t), "elsewhere", withKey(tc.key, write(t, config)), tc.label)
			create(t, cp, ns, "secret", withKey(tc.key, write(t, config)), tc.label)
			m := start(t, cp, tc.provider(ns)).next(t, tc.want(ns))
			if m.Err != nil || m.Config.Host != tc.server {
				t.Errorf("got %v, %v, want %s", m.Config, m.Err, tc.server)
			}
		})
	}
}

func TestAnAnnotationChoosesTheContext(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns})
	secret := create(t, cp, ns, "secret", withKey("kubeconfig", write(t, newKubeconfig())), kubeconfig.Label)
	first := r.next(t, "secret")
	for context, want := range map[string]string{"other": "https://west.example.com", "main": "https://east.example.com:6443"} {
		update(t, cp, secret, func(s *corev1.Secret) { s.Annotations = map[string]string{kubeconfig.ContextAnnotation: context} })
		if m := r.next(t, "secret"); m.Config.Host != want || (m.Revision == first.Revision) != (context == "main") {
			t.Errorf("context %s leads to %s, want %s", context, m.Config.Host, want)
		}
	}
	update(t, cp, secret, func(s *corev1.Secret) { s.Annotations[kubeconfig.ContextAnnotation] = "gone" })
	wantError(t, r.next(t, "secret").Err, kubeconfig.ReasonInvalid, `context "gone"`)
}

func TestARefusedKubeconfigIsTheMembersStateAndAnEvent(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	config := newKubeconfig()
	refusals["exec"].change(config.Clusters["east"], config.AuthInfos["admin"])
	secret := create(t, cp, ns, "secret", withKey("kubeconfig", write(t, config)), kubeconfig.Label)

	strict := start(t, cp, kubeconfig.Provider{Namespace: ns})
	wantError(t, strict.next(t, "secret").Err, kubeconfig.ReasonRefused, `exec of user "admin"`, "Allow.Exec")
	waitForEvent(t, cp, secret, kubeconfig.ReasonRefused, `exec of user "admin"`)

	lenient := start(t, cp, kubeconfig.Provider{Namespace: ns, Allow: kubeconfig.Allow{Exec: programs}})
	if m := lenient.next(t, "secret"); m.Err != nil || m.Config.ExecProvider == nil {
		t.Errorf("got %v although exec is allowed", m.Err)
	}

	update(t, cp, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte(randomBytes) })
	wantError(t, strict.next(t, "secret").Err, kubeconfig.ReasonInvalid, "kind Config")
	waitForEvent(t, cp, secret, kubeconfig.ReasonInvalid, "kind Config")
	update(t, cp, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = write(t, newKubeconfig()) })
	if m := strict.next(t, "secret"); m.Err != nil {
		t.Error(m.Err)
	}
}

// randomBytes begin like a program.
const randomBytes = "\x7fELF\x02\x01\x01\x00\xff\xfe" + secret

func TestSecretsOfTheGreatestSizeAndNamesOfTheGreatestLengthWork(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 63)}}
	if err := cp.Client().Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	r := start(t, cp, kubeconfig.Provider{AllNamespaces: true})
	config := newKubeconfig()
	text := write(t, config)
	filler := []byte("\n# " + strings.Repeat("x", corev1.MaxSecretSize-len(text)-3))
	name := strings.Repeat("s", 253)
	create(t, cp, ns.Name, name, withKey("kubeconfig", append(text, filler...)), kubeconfig.Label)
	if m := r.next(t, fleet.ClusterName(ns.Name+"/"+name)); m.Err != nil {
		t.Error(m.Err)
	}
}

func waitForEvent(t *testing.T, cp *mctest.ControlPlane, about client.Object, reason, text string) {
	t.Helper()
	var seen []string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list := &eventsv1.EventList{}
		if err := cp.Client().List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return false, err
		}
		seen = nil
		for _, e := range list.Items {
			if strings.Contains(e.Note, secret) {
				return false, fmt.Errorf("an event tells a secret: %s", e.Note)
			}
			if e.Reason == reason && e.Regarding.UID == about.GetUID() && strings.Contains(e.Note, text) {
				return true, nil
			}
			seen = append(seen, e.Reason+": "+e.Note)
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("waiting for an event %s: %v; there are %q", reason, err, seen)
	}
}

func TestACopyOfTheKubeconfigChangesNothing(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns})
	config := newKubeconfig()
	secret := create(t, cp, ns, "secret", withKey("kubeconfig", write(t, config)), kubeconfig.Label)
	before := r.next(t, "secret")

	loaded, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	loaded.Contexts["more"] = loaded.Contexts["main"]
	update(t, cp, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = write(t, loaded) })
	if after := r.next(t, "secret"); after.Revision != before.Revision {
		t.Error("the revision has changed")
	}
	loaded.AuthInfos["admin"].Token = "new"
	update(t, cp, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = write(t, loaded) })
	if after := r.next(t, "secret"); after.Revision == before.Revision || after.Config.BearerToken != "new" {
		t.Error("the new token was not taken over")
	}
}
