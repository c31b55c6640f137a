package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/members"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// shownMembers are the Members of a test's manager.
type shownMembers struct {
	*manager
	local client.Client
	asked *atomic.Int64 // requests to all members
}

// newShownMembers makes a manager with Members, beside the Secrets that describe these. It is not started.
func newShownMembers(t *testing.T, hub *mctest.ControlPlane) *shownMembers {
	t.Helper()
	asked := &atomic.Int64{}
	m, _ := newSecretsManager(t, hub, func(o *fleet.Options) {
		o.RESTConfig = func(_ fleet.Member, cfg *rest.Config) error {
			cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &counted{through, asked} })
			return nil
		}
	})
	if err := members.Setup(m, members.Options{Namespace: m.ns}); err != nil {
		t.Fatal(err)
	}
	return &shownMembers{m, hub.Client(), asked}
}

// counted counts the requests that it passes on.
type counted struct {
	http.RoundTripper
	requests *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

func (s *shownMembers) get(name string) *v1alpha1.Member {
	s.t.Helper()
	m := &v1alpha1.Member{}
	if err := s.local.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, m); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return m
}

// shows waits until a Member has a state and a reason: 15 seconds suffice.
func (s *shownMembers) shows(name string, state fleet.State, reason string) *v1alpha1.Member {
	s.t.Helper()
	var m *v1alpha1.Member
	stage.Within(s.t, 15*time.Second, "the Member "+name+" is "+string(state)+" ("+reason+")", func() bool {
		m = s.get(name)
		return m.Status.State == string(state) && m.Status.Reason == reason
	})
	return m
}

// row returns what kubectl get members -o wide --show-labels prints of a member, by column.
func (s *shownMembers) row(name string) map[string]string {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.GetConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := c.RESTClient().Get().AbsPath("/apis/fleet.fleet-runtime.dev/v1alpha1/namespaces/"+s.ns+"/members/"+name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(raw, table); err != nil {
		s.t.Fatal(err)
	}
	row := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		text, _ := json.Marshal(table.Rows[0].Cells[i]) //nolint:errchkjson // it was JSON
		row[column.Name] = strings.Trim(string(text), `"`)
	}
	return row
}

// step is a part of the test, with a name of its own. It needs those before it.
func (s *shownMembers) step(name string, run func()) {
	s.t.Helper()
	whole := s.t
	whole.Run(name, func(t *testing.T) {
		s.t = t
		defer func() { s.t = whole }()
		run()
	})
}

// TestMembersSayWhichClustersCannotBeReachedAndWhy is AS-11. A Member has the name of the cluster and the server where a
// ClusterDetector had the context of a kubeconfig and the cluster there; the user is in the status of ClusterAccesses, as the subject.
func TestMembersSayWhichClustersCannotBeReachedAndWhy(t *testing.T) {
	t.Parallel()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	f := pool.Start(t, mctest.Options{Clusters: 3, CRDPaths: []string{"../../members/v1alpha1/crd.yaml"}, Scheme: known})
	ns := inAll(t, f)
	primary, secondary1, secondary2 := f.Members[0], f.Members[1], f.Members[2]
	s := newShownMembers(t, f.Local)
	token, account := withToken(t, secondary2, ns, "revoked")
	g, next := newGateway(t, newAuthority(t), primary), newGateway(t, newAuthority(t), primary)
	front := stage.NewNetwork(t, strings.TrimPrefix(g.server.URL, "https://"))
	behind := g.config()
	behind.Host = "https://" + front.Address

	roles := map[string]string{"primary": "primary", "secondary1": "secondary", "secondary2": "secondary"}
	for name, cfg := range map[string]*rest.Config{"primary": behind, "secondary1": secondary1.Config(), "secondary2": token} {
		content, err := mctest.Kubeconfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.joinWith(name, content, map[string]string{"role": roles[name]})
	}
	s.start()
	for name := range roles {
		s.shows(name, fleet.Ready, "")
	}

	s.step("AS-11 the table has state, reason, age, cluster and server, and the labels are those of the member", func() {
		s.checkTable(roles)
	})
	s.step("AS-11 a cluster that was stopped is Unreachable with a reason and a time", func() {
		since := s.get("secondary1").Status.Since
		secondary1.Stop(s.t)
		down := s.shows("secondary1", fleet.Unreachable, fleet.ReasonRefused)
		if down.Status.Message == "" || down.Status.Since.Before(&since) {
			s.t.Errorf("a member that was stopped: %+v", down.Status)
		}
	})
	s.step("AS-11 a cluster that was started is Ready without a reason", func() {
		secondary1.Restart(s.t)
		s.shows("secondary1", fleet.Ready, "")
	})
	s.step("AS-11 a server certificate of another CA has a reason of its own", func() {
		front.LeadTo(strings.TrimPrefix(next.server.URL, "https://"))
		s.shows("primary", fleet.Unreachable, fleet.ReasonCertificate)
		front.LeadTo(strings.TrimPrefix(g.server.URL, "https://"))
		s.shows("primary", fleet.Ready, "")
	})
	s.step("AS-11 a revoked credential has a reason of its own", func() {
		if err := secondary2.Client().Delete(s.t.Context(), account); err != nil {
			s.t.Fatal(err)
		}
		s.shows("secondary2", fleet.Unreachable, fleet.ReasonUnauthorized)
	})
	s.step("AS-11 a server that hangs delays the status of no other", func() {
		secondary2.Freeze(s.t)
		s.shows("secondary2", fleet.Unreachable, fleet.ReasonTimeout)
		secondary1.Stop(s.t)
		s.shows("secondary1", fleet.Unreachable, fleet.ReasonRefused)
		secondary1.Restart(s.t)
		s.shows("secondary1", fleet.Ready, "")
		secondary2.Thaw(s.t)
	})
	s.step("AS-11 a Member that was deleted is there again", func() {
		before := s.get("secondary1")
		if err := s.local.Delete(s.t.Context(), before); err != nil {
			s.t.Fatal(err)
		}
		eventually(s.t, "the Member is there again", func() bool {
			m := s.get("secondary1")
			return m.UID != "" && m.UID != before.UID && m.Status.State == string(fleet.Ready)
		})
	})
	s.step("AS-11 unrelated Secrets cause nothing", s.unrelatedSecretsChangeNothing)
}

// checkTable looks at what kubectl get members -o wide --show-labels prints.
func (s *shownMembers) checkTable(roles map[string]string) {
	t := s.t
	t.Helper()
	for name, role := range roles {
		if m := s.get(name); m.Labels["role"] != role {
			t.Errorf("the labels of %s are %v", name, m.Labels)
		}
	}
	eventually(t, "the version is shown", func() bool { return strings.HasPrefix(s.get("secondary1").Status.Version, "v1.") })
	row := s.row("secondary1")
	for column, want := range map[string]string{
		"Name": "secondary1", "State": "Ready", "Cluster": "secondary1", "Server": s.status("secondary1").Server,
		"Identity": s.status("secondary1").Identity,
	} {
		if row[column] != want {
			t.Errorf("the column %s has %q, want %q, of %v", column, row[column], want, row)
		}
	}
	for _, column := range []string{"Reason", "Since", "Version", "Paused", "Age", "Expires", "Message"} {
		if _, ok := row[column]; !ok {
			t.Errorf("there is no column %s: %v", column, row)
		}
	}
}

// unrelatedSecretsChangeNothing says that other Secrets, as they change, cause no Member to be written, no member to be connected
// and no probe. On a machine that is late, a member may be unreachable for a moment: what changes cause, each round of them causes.
func (s *shownMembers) unrelatedSecretsChangeNothing() {
	t := s.t
	t.Helper()
	engagement, err := s.GetFleet().Engagement("secondary1")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "unrelated"}}
	if err := s.local.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, 2*time.Minute, "an unrelated Secret changes, and nothing else", func() bool { return s.isQuietWhileItChanges(secret) })
	if same, err := s.GetFleet().Engagement("secondary1"); err != nil || same != engagement {
		t.Errorf("the member was connected anew: %v", err)
	}
}

// isQuietWhileItChanges changes a Secret, and reports whether no Member was written meanwhile, and members were asked less often than it
// changed: probes are due anyway, one a second of each member.
func (s *shownMembers) isQuietWhileItChanges(secret *corev1.Secret) bool {
	t := s.t
	t.Helper()
	names := []string{"primary", "secondary1"}
	versions := func() (all []string) {
		for _, name := range names {
			all = append(all, s.get(name).ResourceVersion)
		}
		return all
	}
	for _, name := range names {
		eventually(t, "all of "+name+" is written", func() bool {
			shown := s.get(name).Status
			return shown.State == string(fleet.Ready) && shown.Reason == "" && shown.Version != ""
		})
	}
	before, asked := versions(), s.asked.Load()
	const changes = 200
	for range changes {
		secret.StringData = map[string]string{"a": secret.ResourceVersion}
		if err := s.local.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	last := "after-" + secret.ResourceVersion
	s.joinWith(last, []byte("no kubeconfig"), nil)
	eventually(t, "a Secret that came later is shown", func() bool { return s.get(last).Status.State != "" || s.problem(last) })
	requests, after := s.asked.Load()-asked, versions()
	t.Logf("%d changes came with %d requests to the members, whose Members had the versions %v and have %v", changes, requests, before, after)
	return asked > 0 && requests < changes && slices.Equal(before, after)
}

// problem reports whether discovery has a problem with a Secret.
func (s *shownMembers) problem(name string) bool {
	return slices.ContainsFunc(s.GetFleet().Problems(), func(p fleet.Problem) bool { return strings.HasSuffix(p.About, "/"+name) })
}
