package mcwebhook

import (
	"context"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// misled is a reader of a member to which a gateway knows no way.
type misled struct{ client.Reader }

// Get implements [client.Reader].
func (misled) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, key.Name, "404 page not found", 0, true)
}

// TestAConfigurationThatAGatewayHidesIsNeitherWrittenNorGone: it may be another's.
func TestAConfigurationThatAGatewayHidesIsNeitherWrittenNorGone(t *testing.T) {
	t.Parallel()
	p := place{reader: misled{}, kind: &kind{}, name: "limits"} // which has no client to write with
	if err := p.remove(t.Context()); err == nil {
		t.Error("it is said to be removed")
	}
	if live, err := p.get(t.Context()); err == nil {
		t.Errorf("there is said to be %v", live)
	}
}
