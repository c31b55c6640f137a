package kind

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const examples = root + "/examples/"

// testDeploymentcopy copies from the one member to the other.
func (c *clusters) testDeploymentcopy(t *testing.T) {
	rbac := examples + "deploymentcopy/rbac/"
	c.kubectl(t, hub, "apply", "-f", rbac+"controller.yaml")
	c.kubectl(t, east, "apply", "-f", rbac+"source.yaml")
	c.kubectl(t, west, "apply", "-f", rbac+"target.yaml")
	c.join(t, east, "-a", "fleet/deploymentcopy-source", "-l", "role=source")
	c.join(t, west, "-a", "fleet/deploymentcopy-target", "-l", "role=target")
	c.runs(t, "deploymentcopy", "fleet", "deploymentcopy")

	c.kubectl(t, east, "create", "deployment", "copied", "--image", "fleet.example.com/standin:dev")
	c.available(t, west, "default", "copied", "1")
	c.kubectl(t, east, "scale", "deployment", "copied", "--replicas", "2")
	c.available(t, west, "default", "copied", "2")
	c.kubectl(t, east, "delete", "deployment", "copied", "--timeout", patience.String())
	c.prints(t, "", west, "get", "deployments", "--namespace", "default", "--output", "name")
}

// testFoo has two members ask for the same Deployment of the hub.
func (c *clusters) testFoo(t *testing.T) {
	rbac := examples + "foo/rbac/"
	c.kubectl(t, hub, "apply", "-f", rbac+"central.yaml")
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "apply", "-f", examples+"foo/crd.yaml", "-f", rbac+"member.yaml")
		c.join(t, member, "-a", "foo/foo-controller")
	}
	c.runs(t, "foo", "foo", "foo-controller")

	c.kubectl(t, east, "apply", "-f", examples+"foo/foo.yaml")
	c.available(t, hub, "foo", "example-foo", "1")
	status := []string{"get", "foo", "example-foo", "--output", "jsonpath={.status.availableReplicas}"}
	c.prints(t, "1", east, status...)
	c.kubectl(t, west, "apply", "-f", examples+"foo/foo.yaml")
	c.printsSome(t, "ErrResourceExists", west, "get", "foo", "example-foo")
	c.kubectl(t, east, "delete", "foo", "example-foo", "--cascade=foreground", "--timeout", patience.String())
	c.prints(t, "1", west, status...)
	c.kubectl(t, west, "delete", "foo", "example-foo", "--timeout", patience.String())
	c.prints(t, "", hub, "get", "deployments", "--namespace", "foo", "--selector", "app=example-foo", "--output", "name")
}

// testJobs runs something in all clusters.
func (c *clusters) testJobs(t *testing.T) {
	rbac := examples + "jobs/rbac/"
	c.kubectl(t, hub, "apply", "-f", examples+"jobs/crd.yaml", "-f", rbac+"main.yaml")
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "apply", "-f", rbac+"member.yaml")
		c.join(t, member, "-a", "fleet/jobs")
	}
	c.runs(t, "jobs", "fleet", "jobs")

	c.apply(t, hub, `{"apiVersion": "job.lailin.xyz/v1", "kind": "Test", "metadata": {"namespace": "default", "name": "hello"},
		"spec": {"image": "fleet.example.com/standin:dev", "command": ["standin", "hello"]}}`)
	const states = "jsonpath={.status.phase}{range .status.results[*]}, {.cluster} is {.state}{end}"
	c.prints(t, "finished,  is complete, east is complete, west is complete", hub, "get", "test", "hello", "--output", states)
	for _, name := range []string{hub, east, west} {
		c.prints(t, "hello\n", name, "--namespace", "default", "logs", "job/hello")
	}
	c.kubectl(t, hub, "delete", "test", "hello", "--timeout", patience.String())
	for _, name := range []string{hub, east, west} {
		c.prints(t, "", name, "--namespace", "default", "get", "jobs", "--output", "name")
	}
}

// testImages has the API servers of members ask a webhook in the hub. They reach it by a port of the hub's node.
func (c *clusters) testImages(t *testing.T) {
	const port, labelled = "30444", "webhooks.fleet-runtime.dev/name=images"
	rbac := examples + "images/rbac/"
	c.kubectl(t, hub, "apply", "-f", rbac+"controller.yaml")
	c.apply(t, hub, `{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "fleet", "name": "images"},
		"spec": {"type": "NodePort", "selector": {"app": "images"}, "ports": [{"port": 443, "targetPort": 9444, "nodePort": `+port+`}]}}`)
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "apply", "-f", rbac+"member.yaml")
		c.join(t, member, "-a", "fleet/images-member")
	}
	c.kubectl(t, east, "--namespace", "fleet", "create", "configmap", "images", "--from-literal", "prefixes=registry.k8s.io/")
	c.runs(t, "images", "fleet", "images", "--url", "https://"+prefix+hub+"-control-plane:"+port)

	deploy := []string{"create", "deployment", "shop", "--image", "fleet.example.com/standin:dev", "--dry-run=server", "--output", "name"}
	eventually(t, "east refuses an image", func() error {
		printed, err := c.try(t.Context(), "kubectl", append([]string{"--context", contextOf(east)}, deploy...)...)
		if err == nil || !strings.Contains(err.Error(), "east allows images of registry.k8s.io/") {
			return fmt.Errorf("it prints %q; error %w", printed, err)
		}
		return nil
	})
	c.prints(t, "deployment.apps/shop\n", west, deploy...)
	c.kubectl(t, west, "wait", "--for=create", "validatingwebhookconfiguration", "--selector", labelled, "--timeout", patience.String())
	c.kubectl(t, hub, "--namespace", "fleet", "scale", "deployment", "images", "--replicas", "0")
	c.prints(t, "deployment.apps/shop\n", east, deploy...) // once nobody answers
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "delete", "validatingwebhookconfigurations", "--selector", labelled)
	}
}

// testQuickstart runs the demo against clusters of the user.
func (c *clusters) testQuickstart(t *testing.T) {
	names := []string{contextOf(hub), contextOf(east), contextOf(west)}
	said := c.run(t, c.later.program("quickstart"), "-kubeconfig", c.kubeconfig, "-contexts", strings.Join(names, ","))
	if want := "Every ConfigMap of " + strings.Join(names, ", ") + " was reconciled"; !strings.Contains(said, want) {
		t.Errorf("it lacks %q:\n%s", want, said)
	}
}

// runs deploys an example in the hub, until the test ends. Then the members leave too.
func (c *clusters) runs(t *testing.T, program, namespace, account string, args ...string) {
	t.Helper()
	labels := map[string]string{"app": program}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: program},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: account,
					Containers:         []corev1.Container{{Name: program, Image: "fleet.example.com/" + program + ":dev", Args: append(args, "--metrics", "0")}},
				},
			},
		},
	}
	must(t, c.client(t, hub).Create(t.Context(), deployment))
	t.Cleanup(func() {
		for _, args := range [][]string{
			{"--namespace", namespace, "delete", "deployment", program},
			{"--namespace", "fleet", "delete", "secrets", "--selector", "fleet-runtime.dev/kubeconfig"},
		} {
			if _, err := c.try(context.WithoutCancel(t.Context()), "kubectl", append([]string{"--context", contextOf(hub)}, args...)...); err != nil {
				t.Error(err)
			}
		}
	})
	c.logsIfItFails(t, namespace, program) // before it is deleted
}

// available waits until so many pods of a Deployment run.
func (c *clusters) available(t *testing.T, in, namespace, name, want string) {
	t.Helper()
	c.prints(t, want, in, "--namespace", namespace, "get", "deployment", name, "--output", "jsonpath={.status.availableReplicas}")
}

// prints waits until kubectl prints this.
func (c *clusters) prints(t *testing.T, want, in string, args ...string) {
	t.Helper()
	c.eventually(t, in, args, func(got string) bool { return got == want })
}

// printsSome waits until kubectl prints something that has this in it.
func (c *clusters) printsSome(t *testing.T, want, in string, args ...string) {
	t.Helper()
	c.eventually(t, in, args, func(got string) bool { return strings.Contains(got, want) })
}

func (c *clusters) eventually(t *testing.T, in string, args []string, right func(string) bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("kubectl %v in %s prints what it should", args, in), func() error {
		got, err := c.try(t.Context(), "kubectl", append([]string{"--context", contextOf(in)}, args...)...)
		if err != nil || !right(got) {
			return fmt.Errorf("it prints %q; error %w", got, err)
		}
		return nil
	})
}
