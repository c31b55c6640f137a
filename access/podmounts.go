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
	"k8s.io/apimachinery/pkg/util/validation"
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
	names, err := importsNamed(pod)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if len(names) == 0 || req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	added := additions{pod: pod}
	for _, name := range names {
		i := &v1alpha1.ServiceAccountImport{}
		key := client.ObjectKey{Namespace: req.Namespace, Name: name}
		if err := m.Reader.Get(ctx, key, i); err != nil && !apierrors.IsNotFound(err) {
			return later("reading the ServiceAccountImport %s: %v", key, err)
		} else if err != nil {
			return later("there is no ServiceAccountImport %s, which the annotation %s names: create it, then the pod again", key, v1alpha1.MountAnnotation)
		}
		if len(i.Status.Secrets) == 0 || i.Status.ExpirationTime.IsZero() {
			return later("the ServiceAccountImport %s has no Secret yet, and its status says why: create the pod again later", key)
		}
		added.mount(name, i.Status.Secrets[0].Name)
	}
	return added.response()
}

// later refuses a pod for now.
func later(format string, args ...any) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: fmt.Sprintf(format, args...),
	}}}
}

const (
	// maxMounted is how many imports a pod may name. API servers ask webhooks before they look at what an annotation holds.
	maxMounted = 64
	// maxMounts is how many mounts a pod may be given, over all of its containers.
	maxMounts = 4096
)

// importsNamed returns the names in the annotation of a pod, each once.
func importsNamed(pod *corev1.Pod) (names []string, err error) {
	for name := range strings.SplitSeq(pod.Annotations[v1alpha1.MountAnnotation], ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "" || slices.Contains(names, name):
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			return nil, fmt.Errorf("the annotation %s has %.64q, which no ServiceAccountImport can be called", v1alpha1.MountAnnotation, name)
		case len(names) == maxMounted:
			return nil, fmt.Errorf("the annotation %s names more than %d ServiceAccountImports, which is the most", v1alpha1.MountAnnotation, maxMounted)
		default:
			names = append(names, name)
		}
	}
	if containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); containers*len(names) > maxMounts {
		return nil, fmt.Errorf("%d ServiceAccountImports in %d containers are more than the %d mounts that are made", len(names), containers, maxMounts)
	}
	return names, nil
}

// additions are what is added to a pod. They are told apart from the pod, which may have fields that its type here does not know.
type additions struct {
	pod     *corev1.Pod
	patches []addition
}

// addition is an operation of a JSON patch.
type addition struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// add adds one to a list of the pod, which has that many already.
func (a *additions) add(list string, has int, one any) {
	if has == 0 { // there may be no list
		a.patches = append(a.patches, addition{"add", list, []any{one}})
		return
	}
	a.patches = append(a.patches, addition{"add", list + "/-", one})
}

// mount mounts a Secret into all containers. A webhook may be asked twice for one pod, so it adds nothing the second time.
func (a *additions) mount(name, secret string) {
	sum := sha256.Sum256([]byte(name))
	volume := corev1.Volume{
		Name:         "import-" + hex.EncodeToString(sum[:])[:16], // a name of a volume has 63 bytes at most, and no dots
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
	}
	spec := &a.pod.Spec
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		a.add("/spec/volumes", len(spec.Volumes), volume)
		spec.Volumes = append(spec.Volumes, volume)
	}
	mount := corev1.VolumeMount{Name: volume.Name, ReadOnly: true, MountPath: path.Join(MountPath, name)}
	for list, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			mounts := &containers[i].VolumeMounts
			if !slices.ContainsFunc(*mounts, func(m corev1.VolumeMount) bool { return m.Name == mount.Name }) {
				a.add(fmt.Sprintf("/spec/%s/%d/volumeMounts", list, i), len(*mounts), mount)
				*mounts = append(*mounts, mount)
			}
		}
	}
}

// response allows the pod with what is added.
func (a *additions) response() admission.Response {
	response := admission.Allowed("")
	if len(a.patches) == 0 {
		return response
	}
	patch, err := json.Marshal(a.patches)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("writing what is added to the pod: %w", err))
	}
	response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	return response
}
