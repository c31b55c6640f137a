package kind

import "testing"

// testReplicator goes through the README of the replicator with two members: the sample has two replicas in one of them, and one in
// the other. The first is deleted, and comes back empty.
func (c *clusters) testReplicator(t *testing.T) {
	const team, folder = "team-a", root + "/operators/replicator/"
	crds := []string{"-f", folder + "v1alpha1/crd.yaml", "-f", root + "/mcowner/dependents/v1alpha1/crd.yaml"}
	c.kubectl(t, hub, append([]string{"apply"}, crds...)...)
	c.kubectl(t, hub, append([]string{"wait", "--for=condition=Established", "--timeout", patience.String()}, crds...)...)
	c.kubectl(t, hub, "apply", "-f", folder+"config/hub.yaml")
	c.logsIfItFails(t, "fleet", "replicator")
	replicas := map[string]string{east: "2", west: "1"}
	receives := func(member string) {
		c.kubectl(t, member, "apply", "-f", folder+"config/member.yaml", "-f", folder+"config/tenant.yaml")
		c.join(t, member, "-a", "fleet/replicator-member", "-l", "size="+replicas[member])
	}
	receives(east)
	receives(west)
	c.kubectl(t, hub, "--namespace", "fleet", "rollout", "status", "deployment/replicator", "--timeout", patience.String())
	c.kubectl(t, hub, "create", "namespace", team)
	c.kubectl(t, hub, "apply", "-f", folder+"config/sample.yaml")
	arrives := func() {
		t.Helper()
		for member, want := range replicas {
			c.available(t, member, team, "web", want)
			c.prints(t, member, member, "--namespace", team, "get", "configmap", "web", "--output", "jsonpath={.data.cluster}")
		}
		c.prints(t, "2 of 2, Done, ", hub, "--namespace", team, "get", "replicator", "web",
			"--output", `jsonpath={.status.synced} of {.status.targets}, {.status.conditions[?(@.type=="Synced")].reason}, {.status.notSyncedIn}`)
	}
	arrives()

	c.kubectl(t, west, "--namespace", team, "scale", "deployment", "web", "--replicas", "3")
	c.prints(t, replicas[west], west, "--namespace", team, "get", "deployment", "web", "--output", "jsonpath={.spec.replicas}")
	c.kubectl(t, east, "--namespace", team, "delete", "deployment", "web")
	arrives()

	c.delete(t, east)
	must(t, c.create(t, east))
	must(t, c.load(east, c.later.folder, ofAll))
	receives(east)
	arrives()

	// What the cluster before had is gone with it, which nobody else can know.
	c.kubectl(t, hub, "--namespace", team, "annotate", "replicator", "web", "fleet-runtime.dev/give-up-clusters=east")
	c.kubectl(t, hub, "--namespace", team, "delete", "replicator", "web", "--timeout", patience.String())
	for member := range replicas {
		c.prints(t, "", member, "--namespace", team, "get", "deployments", "--output", "name")
		c.prints(t, "namespace/"+team+"\n", member, "get", "namespace", team, "--output", "name") // it was there before
	}
}
