package remote

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// unasked is a cluster for which clients can be made, and that is not asked for anything.
type unasked struct{ cluster.Cluster }

// GetHTTPClient implements cluster.Cluster.
func (unasked) GetHTTPClient() *http.Client { return &http.Client{} }

// GetConfig implements cluster.Cluster.
func (unasked) GetConfig() *rest.Config { return &rest.Config{Host: "https://127.0.0.1:1"} }

// GetScheme implements cluster.Cluster.
func (unasked) GetScheme() *runtime.Scheme { return runtime.NewScheme() }

// GetRESTMapper implements cluster.Cluster.
func (unasked) GetRESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// TestClientsOfUsersAreKeptButNotOfAnyNumber: whoever may write references names as many users as he likes.
func TestClientsOfUsersAreKeptButNotOfAnyNumber(t *testing.T) {
	t.Parallel()
	users := &userClients{clients: map[string]client.Client{}}
	for i := range 3 * mostUsers {
		user := fmt.Sprint("user-", i)
		c, err := users.of(user, unasked{})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := users.of(user, unasked{}); err != nil || again != c {
			t.Fatalf("a client is made anew for each request: %v", err)
		}
		if n := len(users.clients); n > mostUsers {
			t.Fatalf("the clients of %d users are kept", n)
		}
	}
}
