package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestEachMemberAllowsItsOwnImages, with the rights of the manifests and no others.
func TestEachMemberAllowsItsOwnImages(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	east, west := f.Members[0], f.Members[1]
	local := stage.NewAccount(t, f.Local, mctest.Rights{File: "rbac/controller.yaml", Needed: map[string]string{
		"update secrets": "certificates are renewed",
	}})
	// No earlier version of this program had others, and nobody changes what there is.
	rights := mctest.Rights{File: "rbac/member.yaml", Needed: map[string]string{}}
	for _, kind := range []string{"validating", "mutating"} {
		for _, verb := range []string{"get", "create", "update", "patch", "delete"} {
			rights.Needed[verb+" "+kind+"webhookconfigurations.admissionregistration.k8s.io"] = "configurations change with versions"
		}
	}
	described := map[string]*corev1.Secret{}
	for name, cp := range map[string]*mctest.ControlPlane{"east": east, "west": west} {
		account := stage.NewAccount(t, cp, rights)
		described[name] = stage.Join(t, f.Local, name, account.Kubeconfig(t), nil, objects.LeaveFinalizer)
		allow(t, cp, name+".example.com/ registry.k8s.io/")
		defer account.NeedsAll(t)
	}
	stage.Join(t, f.Local, "broken", []byte("this is no kubeconfig"), nil) // the program says so in an event
	port := freePort(t)
	p := stage.Start(t, "--kubeconfig", local.File(t), "--metrics", "0", "--port", port, "--url", "https://127.0.0.1:"+port)

	eastern := deployment("east.example.com/shop")
	stage.Soon(t, "west refuses an image of east", func() bool {
		return strings.Contains(refusal(t, west, eastern), "west allows images of west.example.com/, registry.k8s.io/")
	})
	stage.Soon(t, "east refuses an image of nobody", func() bool { return refusal(t, east, deployment("shop")) != "" })
	if why := refusal(t, east, eastern); why != "" {
		t.Errorf("east does not allow its own image: %s", why)
	}
	begins := deployment("east.example.com/shop")
	begins.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "begin", Image: "shop"}}
	if why := refusal(t, east, begins); !strings.Contains(why, "the container begin") {
		t.Errorf("an image of an init container is not looked at: %q", why)
	}

	allow(t, east, "")
	if why := refusal(t, east, eastern); why == "" {
		t.Error("east allows images, although it allows none now")
	}
	if err := east.Client().Delete(t.Context(), configMap("")); err != nil {
		t.Fatal(err)
	}
	if why := refusal(t, east, deployment("shop")); why != "" {
		t.Errorf("east refuses an image, although it says of none any more: %s", why)
	}
	stage.Leave(t, f.Local, described["east"])
	webhooks := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := east.Client().List(t.Context(), webhooks); err != nil || len(webhooks.Items) > 0 {
		t.Errorf("a member that has left has the webhooks %v: %v", webhooks.Items, err)
	}
	p.Kill()
	if why := refusal(t, west, eastern); why != "" {
		t.Errorf("nothing can be deployed while the program does not run: %s", why)
	}
	local.NeedsAll(t)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // of a listener of TCP
}

func configMap(prefixes string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: allowed.Namespace, Name: allowed.Name}, Data: map[string]string{"prefixes": prefixes},
	}
}

// allow says which images a member allows.
func allow(t *testing.T, cp *mctest.ControlPlane, prefixes string) {
	t.Helper()
	err := cp.Client().Create(t.Context(), configMap(prefixes))
	if err != nil {
		err = cp.Client().Update(t.Context(), configMap(prefixes))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func deployment(image string) *appsv1.Deployment {
	labels := map[string]string{"app": "shop"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "shop"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: image}}},
		}},
	}
}

// refusal returns why a Deployment is refused, nothing if it is not. Nothing is stored.
func refusal(t *testing.T, cp *mctest.ControlPlane, d *appsv1.Deployment) string {
	t.Helper()
	err := cp.Client().Create(t.Context(), d.DeepCopy(), client.DryRunAll)
	switch {
	case err == nil:
		return ""
	case !strings.Contains(err.Error(), "denied the request"):
		t.Fatal(err)
	}
	return err.Error()
}
