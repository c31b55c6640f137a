package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

const (
	// programAnnotation says which program keeps a configuration of webhooks, and for which member.
	programAnnotation = "webhooks.fleet-runtime.dev/program"
	// webhooksSecret ends the name of the Secret in the hub that has the ID of such a program, and webhooksID is its key.
	webhooksSecret, webhooksID = "-webhooks", "id"
	// maxProgram is how many bytes of the annotation are read, which anybody in a member may write.
	maxProgram = 4096
)

// program is what keeps a configuration, as the annotation has it.
type program struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Member string `json:"member"`
}

func programOf(obj metav1.Object) (p program) {
	text := obj.GetAnnotations()[programAnnotation]
	if len(text) > maxProgram || json.Unmarshal([]byte(text), &p) != nil {
		return program{}
	}
	return p
}

// keptObject is what is not removed, and why.
type keptObject struct {
	client.Object

	why string
}

// webhooks returns the configurations of webhooks in a member: those that go with it, as programs of this hub keep them for it, and the
// others that programs of fleets keep there.
func (r *reached) webhooks(ctx context.Context, hub *reached, of joined) (ours []client.Object, kept []keptObject, err error) {
	for _, kind := range membership.WebhookKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := r.List(ctx, list, client.HasLabels{membership.WebhooksLabel})
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list each %s in the %s (%s): %w", kind.Kind, r.name, r.config.Host, err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			obj.SetGroupVersionKind(kind)
			if err := r.misnamed(obj); err != nil {
				return nil, nil, err
			}
			why, err := hub.keepsFor(ctx, obj, of)
			switch {
			case err != nil:
				return nil, nil, hubError{err}
			case why == "":
				ours = append(ours, obj)
			default:
				kept = append(kept, keptObject{obj, why})
			}
		}
	}
	return ours, kept, nil
}

// keepsFor returns why a configuration does not go with a member. It is empty for one that a program of this hub keeps for it.
func (r *reached) keepsFor(ctx context.Context, configuration metav1.Object, of joined) (why string, err error) {
	by := programOf(configuration)
	if by.ID == "" {
		return "it does not say which program keeps it", nil
	}
	if !slices.Contains(r.names(of.name), by.Member) {
		return fmt.Sprintf("the program at %s keeps it for the member %q", by.URL, by.Member), nil
	}
	secret := configuration.GetLabels()[membership.WebhooksLabel] + webhooksSecret
	where := []string{markedAs(r.namespace, of.name).Namespace, r.namespace, metav1.NamespaceAll}
	shared := (of.unlisted || len(of.namesakes) > 0) && !strings.Contains(by.Member, "/")
	switch { // a program may mean one of these
	case shared && of.traceless:
		where = nil
	case shared:
		where = where[:1]
	}
	for _, namespace := range where {
		is, err := r.hasProgram(ctx, namespace, secret, by.ID)
		if err != nil || is {
			return "", err
		}
	}
	if shared && of.unlisted {
		return fmt.Sprintf("the program at %s may keep it for a member %s of another namespace, and you may not list the ClusterAccesses of all", by.URL, by.Member), nil
	}
	if shared {
		return fmt.Sprintf("the program at %s may keep it for %s, which has joined too", by.URL, strings.Join(of.namesakes, ", ")), nil
	}
	return fmt.Sprintf("the program at %s keeps it, and no Secret %s that you may read in the hub is of that one", by.URL, secret), nil
}

// hasProgram reports whether a Secret of the name has the ID of a program. What the caller may not read has it not.
func (r *reached) hasProgram(ctx context.Context, namespace, secret, id string) (bool, error) {
	secrets := &corev1.SecretList{}
	err := r.List(ctx, secrets, client.InNamespace(namespace), byName(secret))
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the Secret %s in the %s (%s): %w", secret, r.name, r.config.Host, err)
	}
	for i := range secrets.Items {
		if string(secrets.Items[i].Data[webhooksID]) == id {
			return true, nil
		}
	}
	return false, nil
}
