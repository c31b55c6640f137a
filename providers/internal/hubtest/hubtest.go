// Package hubtest is what tests of providers share whose members are described by objects in a local cluster, the hub.
package hubtest

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Patience is how long a test waits for what must happen.
const Patience = 60 * time.Second

// Must ends the test if there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Kubeconfig returns a kubeconfig that leads where config does.
func Kubeconfig(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	text, err := mctest.Kubeconfig(config)
	Must(t, err)
	return text
}

// StartMembers starts clusters that lack what only a hub has, such as CRDs.
func StartMembers(t *testing.T, pool *mctest.Pool, n int) []*mctest.ControlPlane {
	t.Helper()
	if n == 0 {
		return nil
	}
	f := pool.Start(t, mctest.Options{Clusters: n - 1})
	return append(f.Members, f.Local)
}

// StartLocal returns a started cluster whose scheme knows the types of Kubernetes alone. It ends with the test.
func StartLocal(t *testing.T, config *rest.Config) cluster.Cluster {
	t.Helper()
	local, err := cluster.New(config)
	Must(t, err)
	run(t, local.Start)
	return local
}

// run calls what returns when its context ends, which is with the test.
func run(t *testing.T, start func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	t.Cleanup(func() {
		cancel()
		Must(t, <-done)
	})
}

// Followed is a fleet that discovers by a provider.
type Followed struct{ *fleet.Fleet }

// Follow runs the provider against the hub until the test ends.
func Follow(t *testing.T, hub *rest.Config, p fleet.Provider) Followed {
	t.Helper()
	local := StartLocal(t, hub)
	f := fleet.New(fleet.Options{})
	run(t, func(ctx context.Context) error { return f.Run(ctx, local, p) })
	return Followed{f}
}

// WaitFor waits until the member is in this state, for this reason, and returns its status.
func (f Followed) WaitFor(t *testing.T, name fleet.ClusterName, state fleet.State, reason string) fleet.Status {
	t.Helper()
	return f.WaitUntil(t, name, string(state)+" "+reason, func(s fleet.Status, known bool) bool {
		return known && s.State == state && s.Reason == reason
	})
}

// WaitUntilGone waits until there is no such member.
func (f Followed) WaitUntilGone(t *testing.T, name fleet.ClusterName) {
	t.Helper()
	f.WaitUntil(t, name, "gone", func(_ fleet.Status, known bool) bool { return !known })
}

// WaitUntil waits until the status of the member is as it should be, and returns it.
func (f Followed) WaitUntil(
	t *testing.T, name fleet.ClusterName, what string, ok func(s fleet.Status, known bool) bool,
) fleet.Status {
	t.Helper()
	var status fleet.Status
	var known bool
	// Changes does not tell of a member that had gone before.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		status, known = f.Status(name)
		return ok(status, known), nil
	})
	if err != nil {
		t.Fatalf("%s did not become %s: known %v, %+v", name, what, known, status)
	}
	return status
}

// WaitUntilKnownAs waits until the member is reached as the user.
func (f Followed) WaitUntilKnownAs(t *testing.T, name fleet.ClusterName, user string) {
	t.Helper()
	var got string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		engagement, err := f.Engagement(name)
		if err != nil {
			return false, err
		}
		review := &authenticationv1.SelfSubjectReview{}
		err = engagement.Cluster().GetClient().Create(ctx, review)
		got = review.Status.UserInfo.Username
		return got == user, err
	})
	if err != nil {
		t.Fatalf("%s is reached as %q, want %s: %v", name, got, user, err)
	}
}

// WaitForEvent waits until an event tells of an object of the hub for this reason.
func WaitForEvent(t *testing.T, hub *mctest.ControlPlane, about client.Object, reason string) {
	t.Helper()
	cl, err := client.New(hub.Config(), client.Options{})
	Must(t, err)
	Must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		list := &eventsv1.EventList{}
		if err := cl.List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == about.GetUID() && e.Reason == reason {
				return true, nil
			}
		}
		return false, nil
	}))
}
