package reference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// members returns the member to which an object leads, under the name of its claim.
func (f *follower) members(ctx context.Context, obj *unstructured.Unstructured, also objects.Reader) ([]fleet.Member, error) {
	key := client.ObjectKeyFromObject(obj)
	if !obj.GetDeletionTimestamp().IsZero() && !objects.LeavesWell(obj) {
		f.named.forget(key)
		return nil, nil
	}
	ref, err := f.provider.follow(obj)
	f.named.set(key, ref.Secret) // before the Secret is read, so that a change after that is noticed
	switch {
	case err == nil && ref.Secret.Name == "":
		return nil, nil
	case err != nil && f.provider.Format.PerSecret:
		return nil, fmt.Errorf("%w: %w", objects.ErrNone, err)
	}
	m := fleet.Member{Err: err}
	var secret *corev1.Secret
	if err == nil {
		m, secret = f.provider.member(ctx, ref, also)
	}
	m.Labels = objects.Unreserved(obj.GetLabels())
	if f.provider.Format.PerSecret {
		m.Labels = objects.Unreserved(labelsOf(secret))
	}
	m.Name = claimOf(f.provider.name(key, ref), f.kind, key)
	return []fleet.Member{m}, nil
}

func labelsOf(secret *corev1.Secret) map[string]string {
	if secret == nil {
		return nil
	}
	return secret.Labels
}

// follow returns where an object leads. Of a reference that is not followed, the Secret is empty.
func (p Provider) follow(obj *unstructured.Unstructured) (Reference, error) {
	ref, err := p.Format.Read(obj)
	if err == nil && ref.Secret.Name != "" {
		err = ref.validate()
	}
	if err != nil || ref.Secret.Name == "" {
		return Reference{}, err
	}
	own := obj.GetNamespace()
	if ref.Secret.Namespace == "" {
		ref.Secret.Namespace = own
	}
	if where := ref.Secret.Namespace; where == "" || where != own && !slices.Contains(p.Format.SecretNamespaces, where) {
		return Reference{}, &Error{ReasonRefusedReference, fmt.Sprintf(
			"the object leads to a Secret in namespace %s, which is not one of Format.SecretNamespaces", shown(where))}
	}
	return ref, nil
}

// name returns the name of the member to which an object leads.
func (p Provider) name(obj client.ObjectKey, ref Reference) string {
	of, part := obj, ""
	if p.Format.PerSecret {
		of = ref.Secret
		if ref.Part != "" {
			part = "/" + ref.Part
		}
	}
	if of.Namespace == "" || p.oneNamespace() {
		return of.Name + part
	}
	return of.Namespace + "/" + of.Name + part
}

// member returns the member of a reference without its name and labels, and the Secret, or nil.
func (p Provider) member(ctx context.Context, ref Reference, also objects.Reader) (fleet.Member, *corev1.Secret) {
	secret := &corev1.Secret{}
	switch err := also.Get(ctx, ref.Secret, secret); {
	case apierrors.IsNotFound(err):
		return waiting(ReasonNoSecret, "there is no Secret %s", ref.Secret), nil
	case err != nil:
		return waiting(ReasonSecretsUnreadable, "the Secret %s cannot be read; the manager needs the rights to get, list and "+
			"watch Secrets: %s", ref.Secret, oneline.Text(err.Error(), maxCause)), nil
	}
	if ref.Cluster != nil {
		return ref.Cluster.member(secret, p.Allow), secret
	}
	key, err := ref.key(secret)
	if err != nil {
		return fleet.Member{Err: err}, secret
	}
	m := kubeconfig.Member("", secret.Data[key], "", p.Allow)
	if m.Err != nil {
		m.Err = fmt.Errorf("key %q of Secret %s: %w", key, ref.Secret, m.Err)
	}
	return m, secret
}

func waiting(reason, format string, args ...any) fleet.Member {
	return fleet.Member{Err: objects.Waiting(reason, fmt.Sprintf(format, args...))}
}

// key returns the key of the kubeconfig in the Secret.
func (r Reference) key(secret *corev1.Secret) (string, error) {
	if len(r.Keys) == 0 && len(secret.Data) == 1 {
		return slices.Collect(maps.Keys(secret.Data))[0], nil
	}
	for _, key := range r.Keys {
		if _, ok := secret.Data[key]; ok {
			return key, nil
		}
	}
	if len(r.Keys) == 0 {
		return "", objects.Waiting(ReasonNoKey, fmt.Sprintf(
			"the Secret %s has %d keys, and the object does not say which holds the kubeconfig", r.Secret, len(secret.Data)))
	}
	return "", noKey(secret, r.Keys...)
}

func noKey(secret *corev1.Secret, keys ...string) error {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = fmt.Sprintf("%q", key)
	}
	return objects.Waiting(ReasonNoKey, fmt.Sprintf(
		"the Secret %s has no key %s", client.ObjectKeyFromObject(secret), strings.Join(quoted, " or ")))
}

// member returns the member that is reached by a token. It is described by a kubeconfig, so that the same is refused as in
// those of others.
func (c *Cluster) member(secret *corev1.Secret, allow kubeconfig.Allow) fleet.Member {
	token, ok := secret.Data[c.TokenKey]
	if !ok {
		return fleet.Member{Err: noKey(secret, c.TokenKey)}
	}
	server := c.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	described := clientcmdv1.Cluster{Server: server, ProxyURL: c.ProxyURL, InsecureSkipTLSVerify: c.InsecureSkipTLSVerify}
	if !c.InsecureSkipTLSVerify && c.CAKey != "" {
		described.CertificateAuthorityData = secret.Data[c.CAKey]
	}
	text, err := json.Marshal(clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Contexts:  []clientcmdv1.NamedContext{{Name: name, Context: clientcmdv1.Context{Cluster: name, AuthInfo: name}}},
		Clusters:  []clientcmdv1.NamedCluster{{Name: name, Cluster: described}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: name, AuthInfo: clientcmdv1.AuthInfo{Token: strings.TrimSpace(string(token))}}},
	})
	if err != nil {
		return fleet.Member{Err: errors.New("what the object says cannot be written as a kubeconfig")}
	}
	m := kubeconfig.Member("", text, "", allow)
	if m.Err != nil {
		m.Err = fmt.Errorf("with Secret %s: %w", client.ObjectKeyFromObject(secret), m.Err)
	}
	return m
}
