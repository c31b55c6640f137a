package kubeconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// has reports whether a Secret has the format.
func has(f kubeconfig.Format, s *corev1.Secret) bool {
	return slices.ContainsFunc(f.Selectors, func(selector labels.Selector) bool {
		return selector.Matches(labels.Set(s.Labels))
	})
}

// mine is the selector of formats that have no label of their own.
var mine = labels.SelectorFromSet(labels.Set{"mine": "true"})

// clusterAPISecret is the Secret of a Cluster, marked as Cluster API's own constants say.
func clusterAPISecret(cluster, purpose string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: cluster + "-" + purpose, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Type:       clusterv1.ClusterSecretType, Data: data,
	}
}

func TestAFormatSaysWhichMembersASecretDescribes(t *testing.T) {
	text := write(t, newKubeconfig())
	other := newKubeconfig()
	other.CurrentContext = "other"
	east, west := "https://east.example.com:6443", "https://west.example.com"
	both := map[string][]byte{"east": text, "west": write(t, other)}
	secretWith := func(label, value string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret", Labels: map[string]string{label: value}}, Data: data}
	}
	opaque := clusterAPISecret("prod", "kubeconfig", withKey("value", text))
	opaque.Type = corev1.SecretTypeOpaque
	stray := clusterAPISecret("prod", "kubeconfig", withKey("value", text))
	stray.Name = "another-kubeconfig"

	for name, tc := range map[string]struct {
		format  kubeconfig.Format
		secret  *corev1.Secret
		context string
		want    servers
		none    string // why there is none
	}{
		"ours":                             {kubeconfig.Labelled(), secretWith(kubeconfig.Label, "true", withKey("kubeconfig", text)), "", servers{"": east}, ""},
		"ours with a context":              {kubeconfig.Labelled(), secretWith(kubeconfig.Label, "true", withKey("kubeconfig", text)), "other", servers{"": west}, ""},
		"ours without the key":             {kubeconfig.Labelled(), secretWith(kubeconfig.Label, "true", withKey("value", text)), "", nil, `no key "kubeconfig"`},
		"multicluster-runtime":             {kubeconfig.Labelled(), secretWith(kubeconfig.MulticlusterRuntimeLabel, "true", withKey("kubeconfig", text)), "", servers{"": east}, ""},
		"a key":                            {kubeconfig.Keyed(mine, "config"), secretWith("mine", "true", withKey("config", text)), "", servers{"": east}, ""},
		"the first of several keys":        {kubeconfig.Keyed(mine, "east", "west"), secretWith("mine", "true", both), "", servers{"": east}, ""},
		"Flux":                             {kubeconfig.Flux(mine), secretWith("mine", "true", withKey("value", text)), "", servers{"": east}, ""},
		"Flux with another key":            {kubeconfig.Flux(mine), secretWith("mine", "true", withKey("value.yaml", text)), "", servers{"": east}, ""},
		"Flux with both keys":              {kubeconfig.Flux(mine), secretWith("mine", "true", map[string][]byte{"value": text, "value.yaml": both["west"]}), "", servers{"": east}, ""},
		"Flux without a key":               {kubeconfig.Flux(mine), secretWith("mine", "true", nil), "", nil, `no key "value" or "value.yaml"`},
		"Cluster API":                      {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "kubeconfig", withKey("value", text)), "", servers{"prod": east}, ""},
		"Cluster API with a context":       {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "kubeconfig", withKey("value", text)), "other", servers{"prod": west}, ""},
		"a Cluster whose name ends alike":  {kubeconfig.ClusterAPI(), clusterAPISecret("prod-kubeconfig", "kubeconfig", withKey("value", text)), "", servers{"prod-kubeconfig": east}, ""},
		"Cluster API without the key":      {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "kubeconfig", nil), "", nil, `no key "value"`},
		"Cluster API with another type":    {kubeconfig.ClusterAPI(), opaque, "", nil, `the type of the Secret is "Opaque", not "cluster.x-k8s.io/secret"`},
		"Cluster API with another name":    {kubeconfig.ClusterAPI(), stray, "", nil, ""},
		"the certificates of a Cluster":    {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "ca", withKey("value", text)), "", nil, ""},
		"etcd's certificates of a Cluster": {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "etcd", withKey("value", text)), "", nil, ""},
		"the user data of a machine":       {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "md-0-x7k2p", withKey("value", text)), "", nil, ""},
		"Istio":                            {kubeconfig.Istio(), secretWith("istio/multiCluster", "true", withKey("east", text)), "", servers{"east": east}, ""},
		"Istio with several":               {kubeconfig.Istio(), secretWith("istio/multiCluster", "true", both), "", servers{"east": east, "west": west}, ""},
		"Istio with several and a context": {kubeconfig.Istio(), secretWith("istio/multiCluster", "true", both), "other", servers{"east": west, "west": west}, ""},
		"Istio without keys":               {kubeconfig.Istio(), secretWith("istio/multiCluster", "true", nil), "", nil, "no keys"},
		"Argo CD, for which contexts are no": {
			kubeconfig.ArgoCD(), secretWith("argocd.argoproj.io/secret-type", "cluster", argoCDData(nil)), "other",
			servers{"east": "https://east.example.com"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !has(tc.format, tc.secret) {
				t.Fatal("the selectors do not match the Secret")
			}
			members, err := tc.format.Members(tc.secret, kubeconfig.Reading{Context: tc.context})
			got := servers(nil)
			for _, m := range members {
				if m.Err != nil {
					t.Fatalf("member %q: %v", m.Name, m.Err)
				}
				if got == nil {
					got = servers{}
				}
				got[m.Name] = m.Config.Host
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("members and their servers (-want +got):\n%s", diff)
			}
			if (tc.none == "") != (err == nil) || err != nil && (!errors.Is(err, objects.ErrNone) || !strings.Contains(err.Error(), tc.none)) {
				t.Errorf("got the error %v, want one that says %q", err, tc.none)
			}
		})
	}
}

func TestAFormatLeavesOtherSecretsAlone(t *testing.T) {
	for name, f := range map[string]kubeconfig.Format{
		"Labelled": kubeconfig.Labelled(), "Keyed": kubeconfig.Keyed(mine, "value"), "Flux": kubeconfig.Flux(mine),
		"ClusterAPI": kubeconfig.ClusterAPI(), "Istio": kubeconfig.Istio(), "ArgoCD": kubeconfig.ArgoCD(),
	} {
		for _, label := range []map[string]string{nil, {kubeconfig.Label: "false"}, {"istio/multiCluster": "false"}, {"mine": ""}} {
			if has(f, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: label}}) {
				t.Errorf("%s reads Secrets with the labels %v", name, label)
			}
		}
	}
}

func TestEveryFormatRefusesWhatIsNotAllowed(t *testing.T) {
	config := newKubeconfig()
	refusals["exec"].change(config.Clusters["east"], config.AuthInfos["admin"])
	text := write(t, config)
	for name, tc := range map[string]struct {
		format kubeconfig.Format
		secret *corev1.Secret
		want   string
	}{
		"ours":        {kubeconfig.Labelled(), &corev1.Secret{Data: withKey("kubeconfig", text)}, `exec of user "admin"`},
		"Flux":        {kubeconfig.Flux(mine), &corev1.Secret{Data: withKey("value", text)}, `exec of user "admin"`},
		"Cluster API": {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "kubeconfig", withKey("value", text)), `exec of user "admin"`},
		"Istio":       {kubeconfig.Istio(), &corev1.Secret{Data: withKey("east", text)}, `key "east": the kubeconfig is refused: exec of user "admin"`},
		"Argo CD": {
			kubeconfig.ArgoCD(), &corev1.Secret{Data: argoCDConfig([]byte(argoCDRefusals["awsAuthConfig"].config))}, "awsAuthConfig",
		},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := tc.format.Members(tc.secret, kubeconfig.Reading{})
			if err != nil || len(members) != 1 {
				t.Fatalf("got %d members and the error %v", len(members), err)
			}
			wantError(t, members[0].Err, kubeconfig.ReasonRefused, tc.want, "Allow.Exec")
			members, err = tc.format.Members(tc.secret, kubeconfig.Reading{Allow: kubeconfig.Allow{Exec: programs}})
			if err != nil || members[0].Err != nil || members[0].Config.ExecProvider == nil {
				t.Errorf("got %v, %v although exec is allowed", err, members[0].Err)
			}
		})
	}
}

func TestTheErrorOfOneOfSeveralKeysIsAsShortAsOthers(t *testing.T) {
	config := newKubeconfig()
	long := strings.Repeat("x", 300)
	config.Contexts[long] = config.Contexts["main"].DeepCopy()
	config.Contexts[long].Cluster = long
	config.CurrentContext = long
	members, err := kubeconfig.Istio().Members(&corev1.Secret{Data: withKey(strings.Repeat("k", 253), write(t, config))}, kubeconfig.Reading{})
	if err != nil || len(members) != 1 {
		t.Fatalf("got %d members and the error %v", len(members), err)
	}
	wantError(t, members[0].Err, kubeconfig.ReasonInvalid, `key "kkk`, `cluster "xxx`)
}

func TestFieldsThatContradictEachOtherOrAreMissingEndTheProvider(t *testing.T) {
	noMembers := kubeconfig.Format{Selectors: []labels.Selector{mine}}
	noSelectors := kubeconfig.Labelled()
	noSelectors.Selectors = nil
	for name, tc := range map[string]struct {
		provider kubeconfig.Provider
		want     string
	}{
		"formats and selectors":         {kubeconfig.Provider{Formats: []kubeconfig.Format{kubeconfig.ArgoCD()}, Selectors: []labels.Selector{mine}}, "Provider.Selectors"},
		"formats and a key":             {kubeconfig.Provider{Formats: []kubeconfig.Format{kubeconfig.ArgoCD()}, Key: "value"}, "Provider.Key"},
		"a format without Members":      {kubeconfig.Provider{Formats: []kubeconfig.Format{kubeconfig.ArgoCD(), noMembers}}, "format 1 has no function Members"},
		"a format without any selector": {kubeconfig.Provider{Formats: []kubeconfig.Format{noSelectors}}, "format 0 has no selector"},
		"a nil selector of a format":    {kubeconfig.Provider{Formats: []kubeconfig.Format{kubeconfig.Flux(nil)}}, "format 0 has no selector, or a nil one"},
		"two ways to say where":         {kubeconfig.Provider{Namespace: "a", AllNamespaces: true}, "set one of Provider.Namespace"},
		"a list and a selector":         {kubeconfig.Provider{Namespaces: []string{"a"}, NamespaceSelector: mine}, "set one of Provider.Namespace"},
		"a namespace without a name":    {kubeconfig.Provider{Namespaces: []string{"a", ""}}, "set AllNamespaces"},
		"a nil selector":                {kubeconfig.Provider{Selectors: []labels.Selector{mine, nil}}, "a nil one"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.provider.Run(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got the error %v, want one that says %q", err, tc.want)
			}
		})
	}
}
