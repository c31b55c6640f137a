package kind

import (
	"strings"
	"testing"
)

// moved is the project that was scaffolded for one cluster, and moved: docs/moving-from-controller-runtime.md has the difference.
const moved = "test/kubebuilder/after"

// testMoved deploys the moved project. Its index, its map function, its conditions, its recorder and its finalizer work in each member.
func (c *clusters) testMoved(t *testing.T) {
	const namespace, account = "guestbook-system", "guestbook-controller-manager"
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "apply", "-k", root+"/"+moved+"/config/member")
		c.kubectl(t, member, "wait", "--for=condition=Established", "--timeout", patience.String(), "crd/guestbooks.webapp.example.com")
	}
	c.apply(t, hub, strings.ReplaceAll(c.kubectl(t, hub, "kustomize", root+"/"+moved+"/config/hub"), "controller:latest", "fleet.example.com/moved:dev"))
	for _, member := range []string{east, west} {
		c.join(t, member, "-a", namespace+"/"+account)
		c.kubectl(t, member, "apply", "-f", root+"/"+moved+"/config/samples/webapp_v1_guestbook.yaml")
	}
	c.kubectl(t, hub, "--namespace", namespace, "rollout", "status", "deployment/"+account, "--timeout", patience.String())

	reason := []string{"get", "guestbook", "guestbook-sample", "--output", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`}
	c.prints(t, "SecretMissing", east, reason...)
	c.prints(t, "SecretMissing", west, reason...)
	c.kubectl(t, east, "create", "secret", "generic", "guestbook-sample", "--from-literal", "PASSWORD=east")
	c.prints(t, "Served", east, reason...)
	c.available(t, east, "default", "guestbook-sample", "1")
	c.prints(t, "SecretMissing", west, reason...) // the Secret of the one is not that of the other
	c.kubectl(t, west, "create", "secret", "generic", "guestbook-sample", "--from-literal", "PASSWORD=west")
	c.available(t, west, "default", "guestbook-sample", "1")
	for _, member := range []string{east, west} {
		c.printsSome(t, "Deployed", member, "get", "events", "--field-selector", "involvedObject.kind=Guestbook")
		c.kubectl(t, member, "delete", "guestbook", "guestbook-sample", "--timeout", patience.String())
		c.prints(t, "Our guests", member, "get", "configmap", "guestbook-sample-archive", "--output", "jsonpath={.data.TITLE}")
	}
}
