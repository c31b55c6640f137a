package command_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
)

// misnaming is a cluster that lists what leads elsewhere.
type misnaming struct {
	client.Client
	name string
	gets int
}

// List implements client.Reader.
func (m *misnaming) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if list, ok := list.(*metav1.PartialObjectMetadataList); ok {
		list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: m.name}}}
	}
	return nil
}

// Get implements client.Reader.
func (m *misnaming) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	m.gets++
	return nil
}

// TestWhatLeadsElsewhereIsNotWorkedOn: a hostile member lists it, or a ClusterAccess names it.
func TestWhatLeadsElsewhereIsNotWorkedOn(t *testing.T) {
	t.Parallel()
	const name = "../../../../yours/api/v1/namespaces/prod"
	m := &misnaming{name: name}
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	made, webhooks, have := command.Read(t.Context(), m, secret)
	for what, err := range map[string]error{"made": made, "webhooks": webhooks, "have": have} {
		if !errors.Is(err, paths.ErrNoName) || !strings.Contains(err.Error(), "https://gateway/k8s/clusters/mine") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if m.gets > 0 {
		t.Error("it was asked for")
	}
	m.name, secret.Name = "prod", "prod"
	if made, _, have := command.Read(t.Context(), m, secret); made != nil || have != nil {
		t.Errorf("what has a name: %v, %v", made, have)
	}
}

// TestNoRequestLeavesThePathOfItsServer: with an administrator's credentials it would reach any cluster behind the gateway.
func TestNoRequestLeavesThePathOfItsServer(t *testing.T) {
	t.Parallel()
	config, _, err := command.Connect(t.Context(), write(t, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1/k8s/clusters/mine"}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, refused := range map[string]bool{"yours/api": true, "mine/api": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/k8s/clusters/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if errors.Is(err, paths.ErrBeyond) != refused {
			t.Errorf("%s: %v, want it refused: %t", path, err, refused)
		}
	}
}
