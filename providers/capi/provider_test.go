package capi_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func TestAMemberFollowsTheLifeOfItsCluster(t *testing.T) {
	h, others := startHub(t, 1)
	member := others[0]
	f := follow(t, h, capi.Provider{})
	name := fleet.ClusterName(h.namespace + "/east")

	c := h.create(t, "east", func(c *clusterv1.Cluster) { c.Finalizers = []string{clusterv1.ClusterFinalizer} })
	f.WaitFor(t, name, fleet.Pending, capi.ReasonNotInitialized)
	h.updateStatus(t, c, initialize)
	f.WaitFor(t, name, fleet.Pending, capi.ReasonNoKubeconfig)
	secret := h.createSecret(t, "east", hubtest.Kubeconfig(t, member.AddUser(t, "first")))
	f.WaitFor(t, name, fleet.Ready, "")
	engagement, err := f.Engagement(name)
	hubtest.Must(t, err)

	// The Secret is deleted so that it is made anew, with other credentials.
	hubtest.Must(t, h.Client().Delete(t.Context(), secret))
	f.WaitFor(t, name, fleet.Ready, capi.ReasonNoKubeconfig)
	mayListSecrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}
	h.createSecret(t, "east", hubtest.Kubeconfig(t, member.AddUser(t, "second", mayListSecrets)))
	f.WaitFor(t, name, fleet.Ready, "")
	waitUntilMayListSecrets(t, f, name)

	// The control plane is not available for a while: whether it can be reached is for the fleet to find out.
	h.updateStatus(t, c, condition(clusterv1.ClusterControlPlaneAvailableCondition, metav1.ConditionFalse))
	h.update(t, c, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"seen": "true"} })
	f.WaitUntil(t, name, "labelled", func(s fleet.Status, _ bool) bool { return s.Labels["seen"] == "true" })
	if again, err := f.Engagement(name); again != engagement {
		t.Errorf("the member was engaged anew: %v", err)
	}

	h.update(t, c, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.WaitUntilGone(t, name)
	h.update(t, c, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	f.WaitFor(t, name, fleet.Ready, "")

	hubtest.Must(t, h.Client().Delete(t.Context(), c))
	f.WaitUntilGone(t, name)
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKeyFromObject(c), c)) // it is being deleted
	h.update(t, c, func(c *clusterv1.Cluster) { c.Finalizers = nil })
	h.create(t, "east", initialize)
	f.WaitFor(t, name, fleet.Ready, "")
}

// waitUntilMayListSecrets waits until the member is reached with credentials that have this right.
func waitUntilMayListSecrets(t *testing.T, f hubtest.Followed, name fleet.ClusterName) {
	t.Helper()
	hubtest.Must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, hubtest.Patience, true, func(ctx context.Context) (bool, error) {
		engagement, err := f.Engagement(name)
		if err != nil {
			return false, err
		}
		return engagement.Cluster().GetAPIReader().List(ctx, &corev1.SecretList{}) == nil, nil
	}))
}

func TestWhatAClusterBecomes(t *testing.T) {
	h, others := startHub(t, 1)
	working := others[0].Kubeconfig()
	annotate := func(value string) func(c *clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) {
			initialize(c)
			c.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
		}
	}
	pause := func(c *clusterv1.Cluster) {
		initialize(c)
		c.Spec.Paused = new(true)
	}
	for name, tc := range map[string]struct {
		cluster    func(c *clusterv1.Cluster)
		kubeconfig []byte
		provider   capi.Provider
		state      fleet.State // "" for no member
		reason     string
	}{
		"infrastructure without a control plane": {
			func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = new(true) },
			working,
			capi.Provider{},
			fleet.Pending, capi.ReasonNotInitialized,
		},
		"a control plane that is said to be not initialized": {
			condition(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionFalse),
			working,
			capi.Provider{},
			fleet.Pending, capi.ReasonNotInitialized,
		},
		"an initialized control plane": {initialize, working, capi.Provider{}, fleet.Ready, ""},
		"an initialized control plane of machines alone": {
			condition(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue),
			working,
			capi.Provider{},
			fleet.Ready, "",
		},
		"a kubeconfig that does not parse": {
			initialize, []byte("{"), capi.Provider{}, fleet.Pending, kubeconfig.ReasonInvalid,
		},
		"a Secret without a kubeconfig": {
			initialize, nil, capi.Provider{}, fleet.Pending, kubeconfig.ReasonInvalid,
		},
		"a kubeconfig that runs a program": {
			initialize, withExec(t), capi.Provider{}, fleet.Pending, kubeconfig.ReasonRefused,
		},
		"a kubeconfig that may run a program": {
			initialize, withExec(t),
			capi.Provider{Allow: kubeconfig.Allow{Exec: []kubeconfig.Program{{Command: "/bin/false"}}}},
			fleet.Connecting, "Error", // it runs, and fails
		},
		"a paused Cluster":                      {pause, working, capi.Provider{}, "", ""},
		"a Cluster with the annotation":         {annotate("true"), working, capi.Provider{}, "", ""},
		"a Cluster with an annotation of false": {annotate("false"), working, capi.Provider{}, "", ""}, // as in Cluster API
		"a paused Cluster whose member is kept": {pause, working, capi.Provider{KeepPaused: true}, fleet.Ready, ""},
		"an annotated one whose member is kept": {annotate(""), working, capi.Provider{KeepPaused: true}, fleet.Ready, ""},
		"a Cluster that is explicitly not paused": {
			func(c *clusterv1.Cluster) {
				initialize(c)
				c.Spec.Paused = new(false)
			}, working, capi.Provider{}, fleet.Ready, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hub{h.ControlPlane, h.CreateNamespace(t)}
			h.createSecret(t, "case", tc.kubeconfig)
			h.create(t, "case", tc.cluster)
			tc.provider.Namespace = h.namespace
			f := follow(t, h, tc.provider)
			if tc.state != "" {
				f.WaitFor(t, "case", tc.state, tc.reason)
				return
			}
			h.create(t, "later", nil)
			f.WaitFor(t, "later", fleet.Pending, capi.ReasonNotInitialized)
			if s, known := f.Status("case"); known {
				t.Errorf("there is a member: %+v", s)
			}
		})
	}
}

func TestLabelsOfTheClusterAndItsTopologyArePassedOn(t *testing.T) {
	h, _ := startHub(t, 0)
	f := follow(t, h, capi.Provider{Namespace: h.namespace})
	topology := func(class, version string, labels map[string]string) func(c *clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) {
			c.Labels = labels
			c.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: class}, Version: version}
		}
	}
	const longClass = "a-class-with-a-name-that-is-longer-than-the-63-characters-of-a-label"
	for name, tc := range map[string]struct {
		cluster func(c *clusterv1.Cluster)
		want    map[string]string
	}{
		"none":    {nil, map[string]string{}},
		"labels":  {func(c *clusterv1.Cluster) { c.Labels = map[string]string{"tier": "test"} }, map[string]string{"tier": "test"}},
		"classy":  {topology("small", "v1.34.1", nil), map[string]string{capi.ClassLabel: "small", capi.VersionLabel: "v1.34.1"}},
		"plus":    {topology("small", "v1.34.1+k3s1", nil), map[string]string{capi.ClassLabel: "small", capi.VersionLabel: "v1.34.1_k3s1"}},
		"toolong": {topology(longClass, "v1.34.1", nil), map[string]string{capi.VersionLabel: "v1.34.1"}},
		"forged": {
			topology("small", "v1.34.1", map[string]string{capi.ClassLabel: "mine", "fleet-runtime.dev/argocd-project": "theirs"}),
			map[string]string{capi.ClassLabel: "small", capi.VersionLabel: "v1.34.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.create(t, name, tc.cluster)
			s := f.WaitFor(t, fleet.ClusterName(name), fleet.Pending, capi.ReasonNotInitialized)
			tc.want[objects.NamespaceLabel] = h.namespace
			if diff := cmp.Diff(tc.want, s.Labels, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlySelectedClustersOfTheNamespaceAreMembers(t *testing.T) {
	h, _ := startHub(t, 0)
	tier := func(tier string) func(c *clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) { c.Labels = map[string]string{"tier": tier} }
	}
	hub{h.ControlPlane, h.CreateNamespace(t)}.create(t, "elsewhere", tier("prod"))
	h.create(t, "test", tier("test"))
	prod := h.create(t, "prod", tier("prod"))
	f := follow(t, h, capi.Provider{
		Namespace: h.namespace, Selector: labels.SelectorFromSet(labels.Set{"tier": "prod"}),
	})
	f.WaitFor(t, "prod", fleet.Pending, capi.ReasonNotInitialized)
	if all := f.List(labels.Everything()); len(all) != 1 {
		t.Errorf("there are members that were not selected: %+v", all)
	}
	h.update(t, prod, tier("test"))
	f.WaitUntilGone(t, "prod")
}
