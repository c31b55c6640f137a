package access_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

// serveMounts serves the webhook, and tells the hub of it by the manifest of the page, for the namespace of the test alone.
func (w world) serveMounts(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	accesstest.Must(t, err)
	accesstest.Must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	accesstest.Must(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	accesstest.Must(t, err)
	port := listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
	accesstest.Must(t, listener.Close())
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})
	mgr, err := ctrl.NewManager(w.hub.Config(), ctrl.Options{
		Scheme: w.hub.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server,
	})
	accesstest.Must(t, err)
	(&access.PodMounts{}).SetupWithManager(mgr)
	start(t, mgr)
	until(t, "the webhook is served", func() bool { return server.StartedChecker()(nil) == nil })
	hook := manifest(t)
	hook.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{
		URL: new("https://127.0.0.1:" + strconv.Itoa(port) + *hook.Webhooks[0].ClientConfig.Service.Path), CABundle: certificate,
	}
	accesstest.Create(t, w.hub, hook)
}

// manifest returns the webhook of the page.
func manifest(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	page, err := os.ReadFile("../docs/imports.md")
	accesstest.Must(t, err)
	const kind = "kind: MutatingWebhookConfiguration"
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, kind) {
			hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
			accesstest.Must(t, yaml.UnmarshalStrict([]byte(block), hook))
			return hook
		}
	}
	t.Fatal("the page has no webhook")
	return nil
}

func podWith(namespace, imports string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "multicluster-client-", Annotations: map[string]string{v1alpha1.MountAnnotation: imports},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "busybox"}},
			Containers:     []corev1.Container{{Name: "one", Image: "busybox"}, {Name: "two", Image: "busybox"}},
		},
	}
}

// TestPodsAreGivenTheImportsThatTheyName is AS-7.5.
func TestPodsAreGivenTheImportsThatTheyName(t *testing.T) {
	t.Parallel()
	all := t
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	for _, namespace := range []string{w.namespace, "default"} {
		accesstest.Create(t, w.hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), namespace, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"`+v1alpha1.MountLabel+`":"enabled"}}}`))))
	w.serveMounts(t)
	first, second := "cluster2-default-pod-lister", strings.Repeat("x", 253)
	both := first + ", " + second

	t.Run("a pod before its Secret is refused, and may be made later", func(t *testing.T) {
		accesstest.Create(t, w.hub, w.newImport(first, a.Name, lister))
		until(t, "the label of the namespace is known, and the pod refused", func() bool {
			err := w.hub.Client().Create(t.Context(), podWith(w.namespace, both))
			return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), first+" has no Secret yet") && strings.Contains(err.Error(), "again later")
		})
		w.importQuickly(all) // until the last of these ends
		w.waitForImport(t, first, v1alpha1.ReasonAsExpected)
		err := w.hub.Client().Create(t.Context(), podWith(w.namespace, both))
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "there is no ServiceAccountImport "+w.namespace+"/"+second) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("volumes, and mounts in init and app containers", func(t *testing.T) {
		i := w.newImport(second, a.Name, lister)
		i.Spec.SecretName = "another-name"
		accesstest.Create(t, w.hub, i)
		w.waitForImport(t, second, v1alpha1.ReasonAsExpected)
		pod := podWith(w.namespace, both)
		accesstest.Must(t, w.hub.Client().Create(t.Context(), pod))
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			wantMount(t, pod, c, first, first)
			wantMount(t, pod, c, second, "another-name")
		}
	})
	t.Run("pods without the annotation, and namespaces without the label, are untouched", func(t *testing.T) {
		for _, pod := range []*corev1.Pod{podWith(w.namespace, ""), podWith("default", both)} {
			accesstest.Must(t, w.hub.Client().Create(t.Context(), pod))
			if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "import-") }) {
				t.Errorf("a pod of %s has the volumes %v", pod.Namespace, pod.Spec.Volumes)
			}
		}
	})
}

// wantMount fails the test unless a container has the Secret of an import.
func wantMount(t *testing.T, pod *corev1.Pod, c corev1.Container, name, secret string) {
	t.Helper()
	mount := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == access.MountPath+"/"+name })
	if mount < 0 || !c.VolumeMounts[mount].ReadOnly {
		t.Fatalf("the container %s has the mounts %v", c.Name, c.VolumeMounts)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == c.VolumeMounts[mount].Name && v.Secret != nil && v.Secret.SecretName == secret
	}) {
		t.Errorf("the pod has the volumes %v", pod.Spec.Volumes)
	}
}
