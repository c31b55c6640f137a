package kind

import (
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// testAccesses lets clusters that have nothing of the operator join by mcctl and leave, as docs/install.md says.
func (o *operator) testAccesses(t *testing.T) {
	mcctl := func(args ...string) string {
		t.Helper()
		return o.run(t, o.later.program("mcctl"), append([]string{"--context", contextOf(hub), "--namespace", namespace}, args...)...)
	}
	for name := range o.members { // side by side with what follows, since namespaces take their time
		o.kubectl(t, name, "delete", "-f", manifests+"member.yaml", "--wait=false")
	}
	crds := []string{"-f", root + "/access/v1alpha1/crds.yaml", "-f", root + "/members/v1alpha1/crd.yaml"}
	o.kubectl(t, hub, append([]string{"apply"}, crds...)...)
	o.kubectl(t, hub, append([]string{"wait", "--for=condition=Established", "--timeout", patience.String()}, crds...)...)
	o.kubectl(t, hub, "apply", "-k", examples+"operator/accesses")
	o.kubectl(t, hub, "--namespace", namespace, "rollout", "status", "deployment/operator", "--timeout", patience.String())
	before := map[string]string{}
	for name := range o.members {
		o.kubectl(t, name, "wait", "--for=delete", "namespace/"+namespace, "--timeout", patience.String())
		before[name] = o.kubectl(t, name, everything...)
		mcctl("join", name, "--member-context", contextOf(name), "--rules", manifests+"member.yaml",
			"--advertise-server", "https://"+prefix+name+"-control-plane:6443", "--wait", patience.String())
	}
	o.works(t, "by tokens that do not last")
	for name := range o.members {
		if listed := mcctl("list", "--no-headers"); strings.Count(listed, string(fleet.Ready)) != len(o.members) {
			t.Errorf("mcctl list prints\n%s", listed)
		}
		if described := mcctl("describe", name); strings.Contains(described, "Do this") {
			t.Errorf("mcctl describe %s prints\n%s", name, described)
		}
		if live := mcctl("describe", name, "--live", "--live-account", namespace+"/reader"); !strings.Contains(live, " wait, ") {
			t.Errorf("mcctl describe %s --live prints\n%s", name, live)
		}
	}
	for name := range o.members {
		mcctl("leave", name, "--member-context", contextOf(name), "--dependents", "prune")
	}
	for name := range o.members {
		o.prints(t, before[name], name, everything...)
	}
	o.prints(t, "", hub, "--namespace", namespace, "get", "clusteraccesses,members,secrets", "--output", "name")
	o.kubectl(t, hub, "delete", "-k", examples+"operator/accesses", "--timeout", patience.String())
	o.kubectl(t, hub, append([]string{"delete", "--timeout", patience.String()}, crds...)...)
}

// everything has kubectl print what mcctl could leave behind.
var everything = []string{
	"get", "namespaces,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
	"--all-namespaces", "--output", "name",
}
