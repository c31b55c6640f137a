package clusterprofile_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
)

// newer is the CRD of ClusterProfiles as v1alpha2 has it, in what matters here: without the older list, and without paths.
func newer(t *testing.T) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	version := crd(t).Spec.Versions[0]
	version.Name, version.Storage = "v1alpha2", true
	status := version.Schema.OpenAPIV3Schema.Properties["status"]
	delete(status.Properties, "credentialProviders")
	delete(status.Properties["accessProviders"].Items.Schema.Properties["cluster"].Properties, "certificate-authority")
	return version
}

func TestProfilesAreFollowedInTheVersionThatIsServed(t *testing.T) {
	older := crd(t).Spec.Versions[0]
	older.Storage = false
	for name, versions := range map[string][]apiextensionsv1.CustomResourceDefinitionVersion{
		"v1alpha2 alone": {newer(t)},
		"both":           {older, newer(t)},
	} {
		t.Run(name, func(t *testing.T) {
			definition := crd(t)
			definition.Spec.Versions = versions
			h, members := startHubWith(t, definition, 1)
			f := follow(t, h, clusterprofile.Provider{
				Namespace: h.namespace, AccessProviders: []clusterprofile.AccessProvider{pluginProvider(t)},
			})
			account := newAccount(t, members[0])
			h.create(t, "east", offers(pluginName, throughPlugin(t, members[0],
				pluginConfig{Token: account.token, Args: []string{"--operator"}})))
			f.WaitFor(t, "east", fleet.Ready, "")
			f.WaitUntilKnownAs(t, "east", account.user)
		})
	}
}
