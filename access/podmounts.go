package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// MountPath is the directory in the containers of a pod in which each imported account has a directory, named after the import.
const MountPath = "/var/run/secrets/access.fleet-runtime.dev"

// PodMountsPath is where [PodMounts] is served.
const PodMountsPath = "/mount-service-account-imports"

// PodMounts is a webhook that mounts the Secrets of ServiceAccountImports into pods whose annotation
// [v1alpha1.MountAnnotation] names the imports. A pod whose imports have no Secret yet is refused: whoever made the pod makes it
// again later. It needs the right to get ServiceAccountImports, and reads no Secret.
type PodMounts struct {
	// Reader reads the imports. It should be no cache, which may not know yet what was made before the pod.
	Reader client.Reader
}

var _ admission.Handler = (*PodMounts)(nil)

// SetupWithManager serves the webhook at [PodMountsPath] by the manager's webhook server, with the manager's API reader unless
// there is another.
func (m *PodMounts) SetupWithManager(mgr manager.Manager) {
	if m.Reader == nil {
		m.Reader = mgr.GetAPIReader()
	}
	mgr.GetWebhookServer().Register(PodMountsPath, &admission.Webhook{Handler: m})
}

// Handle implements [admission.Handler].
func (m *PodMounts) Handle(ctx context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the pod: %w", err))
	}
	names := importsNamed(pod.Annotations[v1alpha1.MountAnnotation])
	if len(names) == 0 || req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	for _, name := range names {
		i := &v1alpha1.ServiceAccountImport{}
		key := client.ObjectKey{Namespace: req.Namespace, Name: name}
		if err := m.Reader.Get(ctx, key, i); err != nil && !apierrors.IsNotFound(err) {
			return later("reading the ServiceAccountImport %s: %v", key, err)
		} else if err != nil {
			return later("there is no ServiceAccountImport %s, which the annotation %s names: create it, then the pod again", key, v1alpha1.MountAnnotation)
		}
		if len(i.Status.Secrets) == 0 {
			return later("the ServiceAccountImport %s has no Secret yet, and its status says why: create the pod again later", key)
		}
		mount(&pod.Spec, name, i.Status.Secrets[0].Name)
	}
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("writing the pod: %w", err))
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

// later refuses a pod for now.
func later(format string, args ...any) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: fmt.Sprintf(format, args...),
	}}}
}

// importsNamed returns the names in an annotation, each once.
func importsNamed(annotation string) (names []string) {
	for name := range strings.SplitSeq(annotation, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// mount mounts a Secret into all containers. A webhook may be asked twice for one pod, so it changes nothing the second time.
func mount(spec *corev1.PodSpec, name, secret string) {
	sum := sha256.Sum256([]byte(name))
	volume := "import-" + hex.EncodeToString(sum[:])[:16] // a name of a volume has 63 bytes at most, and no dots
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume }) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{
			Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		})
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			mounts := &containers[i].VolumeMounts
			if !slices.ContainsFunc(*mounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
				*mounts = append(*mounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: path.Join(MountPath, name)})
			}
		}
	}
}
