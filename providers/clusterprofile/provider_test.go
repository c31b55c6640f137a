package clusterprofile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func TestAMemberFollowsTheLifeOfItsProfile(t *testing.T) {
	h, others := startHub(t, 1)
	member := others[0]
	first, second := newAccount(t, member), newAccount(t, member)
	access := func(a account) v1alpha1.ClusterProfileStatus {
		return offers(pluginName, throughPlugin(t, member, pluginConfig{Token: a.token, Args: []string{"--operator"}}))
	}
	f := follow(t, h, clusterprofile.Provider{AccessProviders: []clusterprofile.AccessProvider{pluginProvider(t)}})
	name := fleet.ClusterName(h.namespace + "/east")

	profile := h.create(t, "east", v1alpha1.ClusterProfileStatus{})
	f.WaitFor(t, name, fleet.Pending, clusterprofile.ReasonNoAccess)
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) {
		*s = access(first)
		s.Conditions = healthy(metav1.ConditionFalse)
	})
	f.WaitFor(t, name, fleet.Pending, clusterprofile.ReasonNotHealthy)
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { s.Conditions = healthy(metav1.ConditionTrue) })
	f.WaitFor(t, name, fleet.Ready, "")
	f.WaitUntilKnownAs(t, name, first.user)
	engagement, err := f.Engagement(name)
	hubtest.Must(t, err)

	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { s.AccessProviders = access(second).AccessProviders })
	f.WaitUntilKnownAs(t, name, second.user)
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { s.Conditions = healthy(metav1.ConditionFalse) })
	f.WaitFor(t, name, fleet.Ready, clusterprofile.ReasonNotHealthy)
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) {
		s.Conditions, s.AccessProviders = healthy(metav1.ConditionUnknown), nil
	})
	f.WaitFor(t, name, fleet.Ready, clusterprofile.ReasonNoAccess)
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { s.AccessProviders = access(first).AccessProviders })
	f.WaitUntilKnownAs(t, name, first.user)
	if again, err := f.Engagement(name); again != engagement {
		t.Errorf("the member was engaged anew: %v", err)
	}

	h.update(t, profile, func(p *v1alpha1.ClusterProfile) { p.Finalizers = []string{"test.fleet-runtime.dev/hold"} })
	hubtest.Must(t, h.Client().Delete(t.Context(), profile))
	f.WaitUntilGone(t, name)
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKeyFromObject(profile), profile)) // it is being deleted
}

// withArguments is the CRD changed so that profiles can have the extension for arguments at all: that is a list, but the
// CRD wants all extensions to be objects.
func withArguments(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := crd(t)
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	item := status.Properties["accessProviders"].Items.Schema.Properties["cluster"].Properties["extensions"].Items.Schema
	value := item.Properties["extension"]
	if value.Type != "object" {
		t.Fatalf("the CRD wants extensions to be %q: if lists are allowed now, use it as it is", value.Type)
	}
	value.Type = ""
	item.Properties["extension"] = value
	return crd
}

func TestEachClusterGetsItsOwnArguments(t *testing.T) {
	h, members := startHubWith(t, withArguments(t), 2)
	f := follow(t, h, clusterprofile.Provider{
		Namespace: h.namespace, AccessProviders: []clusterprofile.AccessProvider{pluginProvider(t)},
	})
	names := []string{"east", "west"}
	access := func(i int, a account) v1alpha1.ClusterProfileStatus {
		mine := "--cluster=" + names[i]
		return offers(pluginName, throughPlugin(t, members[i],
			// The program checks that it is called like this.
			pluginConfig{Token: a.token, Args: []string{"--operator", mine}, Env: map[string]string{
				"OPERATOR": "yes", "CLUSTER": names[i], "ONLY_" + names[i]: "1", "ONLY_" + names[1-i]: "",
			}},
			extension(t, "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", []string{mine}),
			extension(t, "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", map[string]string{
				"OPERATOR": "no", "CLUSTER": names[i], "ONLY_" + names[i]: "1",
			}),
		))
	}
	profiles := make([]*v1alpha1.ClusterProfile, len(names))
	for i, name := range names {
		profiles[i] = h.create(t, name, v1alpha1.ClusterProfileStatus{})
	}
	for range 3 { // each time the program runs again
		accounts := make([]account, len(names))
		for i := range names {
			accounts[i] = newAccount(t, members[i])
			h.updateStatus(t, profiles[i], func(s *v1alpha1.ClusterProfileStatus) { *s = access(i, accounts[i]) })
		}
		for i, name := range names {
			f.WaitFor(t, fleet.ClusterName(name), fleet.Ready, "")
			f.WaitUntilKnownAs(t, fleet.ClusterName(name), accounts[i].user)
		}
	}
}

func TestWhatAProfileBecomes(t *testing.T) {
	h, members := startHub(t, 1)
	member := members[0]
	config := pluginConfig{Token: newAccount(t, member).token, Args: []string{"--operator"}}
	works := throughPlugin(t, member, config)
	fails := throughPlugin(t, member, pluginConfig{Token: "wrong"}) // which is not how the program is called
	changed := func(change func(c *clientcmdv1.Cluster)) v1alpha1.ClusterProfileStatus {
		c := *works.DeepCopy()
		change(&c)
		return offers(pluginName, c)
	}
	other := pluginProvider(t)
	other.Name = "other"
	for name, tc := range map[string]struct {
		status v1alpha1.ClusterProfileStatus
		more   []clusterprofile.AccessProvider
		allow  kubeconfig.Allow
		state  fleet.State
		reason string
	}{
		"no access provider that is configured": {
			status: offers("foreign", works), state: fleet.Pending, reason: clusterprofile.ReasonNoAccess,
		},
		"an access provider":   {status: offers(pluginName, works), state: fleet.Ready},
		"a program that fails": {status: offers(pluginName, fails), state: fleet.Connecting, reason: "Error"},
		"an access provider in the older list": {
			status: v1alpha1.ClusterProfileStatus{CredentialProviders: offers(pluginName, works).AccessProviders}, state: fleet.Ready,
		},
		"access providers in both lists": {
			status: v1alpha1.ClusterProfileStatus{
				AccessProviders:     offers(pluginName, works).AccessProviders,
				CredentialProviders: offers(pluginName, fails).AccessProviders,
			},
			state: fleet.Ready,
		},
		"two access providers, the first of which is configured last": {
			status: v1alpha1.ClusterProfileStatus{AccessProviders: slices.Concat(
				offers(other.Name, fails).AccessProviders, offers(pluginName, works).AccessProviders)},
			more:  []clusterprofile.AccessProvider{other},
			state: fleet.Ready,
		},
		"a server without TLS": {
			status: changed(func(c *clientcmdv1.Cluster) { c.Server = "http://127.0.0.1:1" }),
			state:  fleet.Pending, reason: kubeconfig.ReasonRefused,
		},
		"no server": {
			status: changed(func(c *clientcmdv1.Cluster) { c.Server = "" }),
			state:  fleet.Pending, reason: kubeconfig.ReasonInvalid,
		},
		"a file on the manager's host": {
			status: changed(func(c *clientcmdv1.Cluster) { c.CertificateAuthority = "/dev/null" }),
			state:  fleet.Pending, reason: kubeconfig.ReasonRefused,
		},
		"a server whose certificate is not to be checked": {
			status: changed(func(c *clientcmdv1.Cluster) { c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true }),
			state:  fleet.Pending, reason: kubeconfig.ReasonRefused,
		},
		"a server whose certificate need not be checked": {
			status: changed(func(c *clientcmdv1.Cluster) { c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true }),
			allow:  kubeconfig.Allow{InsecureTLS: true},
			state:  fleet.Ready,
		},
		"arguments that are no list": {
			status: changed(func(c *clientcmdv1.Cluster) {
				c.Extensions = append(c.Extensions, extension(t,
					"clusterprofiles.multicluster.x-k8s.io/exec/additional-args", map[string]string{"a": "b"}))
			}),
			state: fleet.Pending, reason: fleet.ReasonInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hub{h.ControlPlane, h.CreateNamespace(t)}
			f := follow(t, h, clusterprofile.Provider{
				Namespace: h.namespace, Allow: tc.allow,
				AccessProviders: append([]clusterprofile.AccessProvider{pluginProvider(t)}, tc.more...),
			})
			h.create(t, "case", tc.status)
			f.WaitFor(t, "case", tc.state, tc.reason)
		})
	}
}

func TestSecretsOfTheOlderConventionAreFollowed(t *testing.T) {
	h, members := startHubWith(t, crd(t), 1) // of its own, since the test writes to the namespace "default"
	member := members[0]
	consumer := h.CreateNamespace(t)
	byPlugin := newAccount(t, member)
	config := func(a account) []byte {
		return hubtest.Kubeconfig(t, &rest.Config{
			Host: member.Config().Host, BearerToken: a.token, TLSClientConfig: rest.TLSClientConfig{CAData: member.Config().CAData},
		})
	}
	f := follow(t, h, clusterprofile.Provider{
		SecretNamespace: consumer, AccessProviders: []clusterprofile.AccessProvider{pluginProvider(t)},
	})
	none := v1alpha1.ClusterProfileStatus{}
	name := fleet.ClusterName(h.namespace + "/east")
	h.create(t, "east", none)
	f.WaitFor(t, name, fleet.Pending, clusterprofile.ReasonNoAccess)

	// None of these is for it.
	wrong := newAccount(t, member)
	h.createSecret(t, h.CreateNamespace(t), "in-another-namespace", belongsTo(h.namespace, "east"), config(wrong))
	h.createSecret(t, consumer, "a-for-another-profile", belongsTo(h.namespace, "west"), config(wrong))
	h.createSecret(t, consumer, "a-for-the-default-namespace", belongsTo("", "east"), config(wrong))
	first, second := newAccount(t, member), newAccount(t, member)
	older := h.createSecret(t, consumer, "b", belongsTo(h.namespace, "east"), config(first))
	f.WaitFor(t, name, fleet.Ready, "")
	f.WaitUntilKnownAs(t, name, first.user)
	younger := h.createSecret(t, consumer, "c", belongsTo(h.namespace, "east"), config(second))
	hubtest.Must(t, h.Client().Delete(t.Context(), older))
	f.WaitUntilKnownAs(t, name, second.user)
	hubtest.Must(t, h.Client().Delete(t.Context(), younger))
	f.WaitFor(t, name, fleet.Ready, clusterprofile.ReasonNoAccess)

	inDefault := hub{h.ControlPlane, metav1.NamespaceDefault}
	profile := inDefault.create(t, "east", none)
	f.WaitFor(t, "default/east", fleet.Ready, "")
	f.WaitUntilKnownAs(t, "default/east", wrong.user)
	inDefault.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) {
		*s = offers(pluginName, throughPlugin(t, member, pluginConfig{Token: byPlugin.token, Args: []string{"--operator"}}))
	})
	f.WaitUntilKnownAs(t, "default/east", byPlugin.user)

	program := &rest.Config{Host: "https://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/false", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	h.createSecret(t, consumer, "program", belongsTo(h.namespace, "program"), hubtest.Kubeconfig(t, program))
	h.create(t, "program", none)
	f.WaitFor(t, fleet.ClusterName(h.namespace+"/program"), fleet.Pending, kubeconfig.ReasonRefused)
}

func TestLabelsPropertiesAndVersionArePassedOn(t *testing.T) {
	h, _ := startHub(t, 0)
	f := follow(t, h, clusterprofile.Provider{Namespace: h.namespace, SecretNamespace: h.namespace})
	profile := h.create(t, "east", v1alpha1.ClusterProfileStatus{
		Version: v1alpha1.ClusterVersion{Kubernetes: "v1.34.1+k3s1"},
		Properties: []v1alpha1.Property{
			{Name: "clusterset.k8s.io", Value: "prod"},
			{Name: "example.com/zone", Value: "a"},
			{Name: "tier", Value: "property"},
			{Name: "a value of several words", Value: "x"},
			{Name: "words", Value: "of a value"},
			{Name: "long", Value: strings.Repeat("x", 64)},
			{Name: "fleet-runtime.dev/argocd-project", Value: "theirs"},
			{Name: clusterprofile.VersionLabel, Value: "forged"},
		},
	})
	h.update(t, profile, func(p *v1alpha1.ClusterProfile) {
		p.Labels = map[string]string{"tier": "label", "empty": "", "fleet-runtime.dev/argocd-shard": "1"}
	})
	want := map[string]string{
		clusterprofile.VersionLabel: "v1.34.1_k3s1", "clusterset.k8s.io": "prod", "example.com/zone": "a", "tier": "label", "empty": "",
		objects.NamespaceLabel: h.namespace,
	}
	f.WaitUntil(t, "east", "labelled", func(s fleet.Status, _ bool) bool { return s.Labels["tier"] == "label" })
	s, _ := f.Status("east")
	if diff := cmp.Diff(want, s.Labels, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestOnlySelectedProfilesOfTheNamespaceAreMembers(t *testing.T) {
	h, _ := startHub(t, 0)
	manager := func(name string) func(p *v1alpha1.ClusterProfile) {
		return func(p *v1alpha1.ClusterProfile) { p.Labels = map[string]string{v1alpha1.LabelClusterManagerKey: name} }
	}
	elsewhere := hub{h.ControlPlane, h.CreateNamespace(t)}
	elsewhere.update(t, elsewhere.create(t, "elsewhere", v1alpha1.ClusterProfileStatus{}), manager("ours"))
	h.update(t, h.create(t, "theirs", v1alpha1.ClusterProfileStatus{}), manager("theirs"))
	ours := h.create(t, "ours", v1alpha1.ClusterProfileStatus{})
	h.update(t, ours, manager("ours"))
	f := follow(t, h, clusterprofile.Provider{
		Namespace: h.namespace, SecretNamespace: h.namespace,
		Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelClusterManagerKey: "ours"}),
	})
	f.WaitFor(t, "ours", fleet.Pending, clusterprofile.ReasonNoAccess)
	if all := f.List(labels.Everything()); len(all) != 1 {
		t.Errorf("there are members that were not selected: %+v", all)
	}
	h.update(t, ours, manager("theirs"))
	f.WaitUntilGone(t, "ours")
}

func TestAProviderThatCanNeverWorkSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		provider clusterprofile.Provider
		want     string
	}{
		"nothing is set": {clusterprofile.Provider{}, "set Provider.AccessProviders or Provider.SecretNamespace"},
		"no program":     {clusterprofile.Provider{AccessProviders: []clusterprofile.AccessProvider{{Name: "a"}}}, `"a"): set the command`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.provider.Run(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %s", err, tc.want)
			}
		})
	}
}
