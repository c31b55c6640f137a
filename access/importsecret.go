package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// secretName returns the name of the Secret of an import.
func secretName(i *v1alpha1.ServiceAccountImport) string {
	if i.Spec.SecretName != "" {
		return i.Spec.SecretName
	}
	return i.Name
}

// labelValue returns a name as the value of a label, in which names that are too long end with a hash.
func labelValue(name string) string {
	const longest, digits = 63, 16
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:longest-1-digits] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// contents returns what the Secret of an import holds.
func contents(i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess, token string) (map[string][]byte, error) {
	name := i.Spec.ClusterName
	config, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: a.Spec.Server, CertificateAuthorityData: a.Spec.CABundle, TLSServerName: a.Spec.TLSServerName, ProxyURL: a.Spec.ProxyURL,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: i.Spec.Namespace}},
		CurrentContext: name,
	})
	return map[string][]byte{
		v1alpha1.ImportToken: []byte(token), v1alpha1.ImportNamespace: []byte(i.Spec.Namespace), v1alpha1.ImportCA: a.Spec.CABundle,
		v1alpha1.ImportServer: []byte(a.Spec.Server), v1alpha1.ImportConfig: config,
	}, err
}

// marks returns what the Secret of an import says of itself. The lifetime is there since that of the token is another where the cluster
// grants less or more.
func marks(i *v1alpha1.ServiceAccountImport) (label, annotation map[string]string) {
	return map[string]string{v1alpha1.ImportLabel: labelValue(i.Name)},
		map[string]string{v1alpha1.ImportSecondsAnnotation: strconv.FormatInt(i.Spec.ExpirationSeconds, 10)}
}

// isWhole reports whether a Secret is as it was written, and for the import and the access as they are now.
func isWhole(secret *corev1.Secret, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess, token string) (bool, error) {
	want, err := contents(i, a, token)
	label, annotation := marks(i)
	return equality.Semantic.DeepEqual(secret.Data, want) && has(secret.Labels, label) && has(secret.Annotations, annotation) &&
		slices.Equal(i.Status.Secrets, []corev1.LocalObjectReference{{Name: secret.Name}}), err
}

func has(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// note writes the name of the Secret into the status before there is one. Otherwise it would be forgotten if its name changed, or the
// program ended, before the status could be written.
func (r *importer) note(ctx context.Context, i *v1alpha1.ServiceAccountImport) error {
	of := corev1.LocalObjectReference{Name: secretName(i)}
	if slices.Contains(i.Status.Secrets, of) {
		return nil
	}
	if len(i.Status.Secrets) > 1 { // the name changed before, and the second may be there
		if err := r.remove(ctx, i, i.Status.Secrets[1].Name); err != nil {
			return err
		}
	}
	before := i.DeepCopy()
	i.Status.Secrets = append(slices.Clip(i.Status.Secrets[:min(1, len(i.Status.Secrets))]), of)
	return r.client.Status().Patch(ctx, i, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// write writes the Secret of an import, in place of the one that there is, if there is one. A Secret of another name, which it had
// before, goes.
func (r *importer) write(
	ctx context.Context, i *v1alpha1.ServiceAccountImport, a *v1alpha1.ClusterAccess, secret *corev1.Secret, token Token,
) error {
	data, err := contents(i, a, token.Value())
	if err != nil {
		return err
	}
	if err := r.note(ctx, i); err != nil {
		return err
	}
	secrets := r.hub.core.Secrets(i.Namespace)
	label, annotation := marks(i)
	if secret == nil {
		owner := metav1.NewControllerRef(i, v1alpha1.GroupVersion().WithKind(v1alpha1.KindServiceAccountImport))
		_, err = secrets.Create(quiet(ctx), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: secretName(i), Labels: label, Annotations: annotation, OwnerReferences: []metav1.OwnerReference{*owner}},
			Data:       data,
		}, metav1.CreateOptions{})
	} else {
		secret = secret.DeepCopy() // with its resource version
		secret.Data = data
		secret.Labels, secret.Annotations = labels.Merge(secret.Labels, label), labels.Merge(secret.Annotations, annotation)
		_, err = secrets.Update(quiet(ctx), secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fromHub("written", i.Namespace, secretName(i), err)
	}
	for _, old := range i.Status.Secrets {
		if old.Name != secretName(i) {
			if err := r.remove(ctx, i, old.Name); err != nil {
				return err
			}
		}
	}
	i.Status.Secrets = []corev1.LocalObjectReference{{Name: secretName(i)}}
	return nil
}
