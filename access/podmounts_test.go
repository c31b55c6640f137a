package access_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

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
		again := podWith(w.namespace, both)
		again.Spec = *pod.Spec.DeepCopy()
		accesstest.Must(t, w.hub.Client().Create(t.Context(), again))
		if len(again.Spec.Volumes) != len(pod.Spec.Volumes) || len(again.Spec.Containers[0].VolumeMounts) != len(pod.Spec.Containers[0].VolumeMounts) {
			t.Errorf("a pod that has them already has %+v", again.Spec)
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

// givenImports is a reader of imports, each of which has a Secret, and counts how often it is asked.
type givenImports struct {
	client.Reader
	asked atomic.Int32
}

// Get implements [client.Reader].
func (g *givenImports) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	g.asked.Add(1)
	i := obj.(*v1alpha1.ServiceAccountImport) //nolint:forcetypeassert // nothing else is read
	i.Status.Secrets = []corev1.LocalObjectReference{{Name: key.Name}}
	i.Status.ExpirationTime = metav1.Now()
	return nil
}

// mountsOf returns what the webhook answers to a pod, as JSON.
func mountsOf(t *testing.T, imports *givenImports, pod string) admission.Response {
	t.Helper()
	return (&access.PodMounts{Reader: imports}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "team-a", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(pod)},
	}})
}

func TestAFieldOfAPodThatTheWebhookDoesNotKnowStays(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"annotations":{"` + v1alpha1.MountAnnotation + `":"x,y"}},"spec":{
		"fieldOfTheNextRelease":{"deny":true}, "initContainers":[{"name":"i"}],
		"containers":[{"name":"c","confinedBy":"strict","volumeMounts":[{"name":"v","mountPath":"/v","by":"next"}]}],
		"volumes":[{"name":"v","nextKind":{}}]}}`
	resp := mountsOf(t, &givenImports{}, pod)
	var patch []struct{ Op, Path string }
	accesstest.Must(t, json.Unmarshal(resp.Patch, &patch))
	paths := map[string]int{}
	for _, p := range patch {
		paths[p.Op+" "+p.Path]++
	}
	want := map[string]int{ // of lists that the API server may not have sent at all, the first makes the list
		"add /spec/volumes/-": 2, "add /spec/containers/0/volumeMounts/-": 2,
		"add /spec/initContainers/0/volumeMounts": 1, "add /spec/initContainers/0/volumeMounts/-": 1,
	}
	if !maps.Equal(paths, want) {
		t.Errorf("the patch is %s", resp.Patch)
	}
}

func TestAPodThatNamesTooManyImportsIsRefusedBeforeAnyIsRead(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var names strings.Builder
		for i := range n {
			fmt.Fprintf(&names, "n%d,n%d,,", i, i)
		}
		return names.String()
	}
	containers := strings.Repeat(`{"name":"c"},`, 4096) + `{"name":"c"}`
	for what, c := range map[string]struct {
		names, containers string
		code              int32
		asked             int32
	}{
		"as many as may be":       {many(64), `{"name":"c"}`, http.StatusOK, 64},
		"one more":                {many(65), `{"name":"c"}`, http.StatusBadRequest, 0},
		"a megabyte of them":      {many(80_000), `{"name":"c"}`, http.StatusBadRequest, 0},
		"a name that cannot be":   {strings.Repeat("n", 300), `{"name":"c"}`, http.StatusBadRequest, 0},
		"in very many containers": {many(1), containers, http.StatusBadRequest, 0},
		"none, in very many":      {"", containers, http.StatusOK, 0},
	} {
		imports := &givenImports{}
		resp := mountsOf(t, imports, `{"metadata":{"annotations":{"`+v1alpha1.MountAnnotation+`":"`+c.names+`"}},"spec":{"containers":[`+c.containers+`]}}`)
		accesstest.Must(t, resp.Complete(admission.Request{}))
		if resp.Result.Code != c.code || imports.asked.Load() != c.asked || len(resp.Result.Message) > 300 {
			t.Errorf("%s: the answer is %.500s, after %d were read", what, resp.Result.String(), imports.asked.Load())
		}
	}
}
