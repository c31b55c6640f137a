package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// east is a provider of one member, which has an empty kubeconfig and leaves when it is told to.
func east(leave <-chan struct{}) fleet.Provider {
	return fleet.NewProvider("east", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		if err := members.Set(fleet.Member{Name: "east", Err: errors.New("the kubeconfig is empty")}); err != nil {
			return err
		}
		select {
		case <-leave:
			members.Remove("east")
			<-ctx.Done()
		case <-ctx.Done():
		}
		return nil
	})
}

// run returns a running fleet, once it has found out about its one member.
func run(ctx context.Context, provider fleet.Provider) *fleet.Fleet {
	f := fleet.New(fleet.Options{}) // a manager has one and runs it: mgr.GetFleet()
	go func() {
		if err := f.Run(ctx, nil, provider); err != nil {
			log.Fatal(err)
		}
	}()
	for change := range f.Changes(ctx) {
		if change.Status.Reason != "" {
			break
		}
	}
	return f
}

// What a member lacks to be Ready is a state that can be read, never an error that stops the manager.
func ExampleFleet_List() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, status := range run(ctx, east(nil)).List(nil) {
		fmt.Printf("%s is %s (%s): %s\n", status.Name, status.State, status.Reason, status.Message)
	}
	// Output: east is Pending (Invalid): the kubeconfig is empty
}

// Asking for a member that cannot be used says why.
func ExampleStateError() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f := run(ctx, east(nil))
	for _, name := range []fleet.ClusterName{"east", "west"} {
		_, err := f.Engagement(name)
		var state *fleet.StateError
		switch {
		case errors.Is(err, fleet.ErrNotReady) && errors.As(err, &state):
			fmt.Println(name, "is not ready:", state.Status.Reason)
		case errors.Is(err, fleet.ErrUnknown):
			fmt.Println(name, "may come yet")
		case errors.Is(err, fleet.ErrGone):
			fmt.Println(name, "was removed")
		}
	}
	// Output:
	// east is not ready: Invalid
	// west may come yet
}

// A loop over the changes sees every member that there is, and then every change.
func ExampleFleet_Changes() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leave := make(chan struct{})
	f := run(ctx, east(leave))
	for change := range f.Changes(ctx) {
		name := change.Status.Name
		if change.Status.State == "" {
			fmt.Println(name, "has left")
			break
		}
		if change.Status.State == fleet.Pending {
			fmt.Println(name, "waits")
			close(leave)
		}
	}
	// Output:
	// east waits
	// east has left
}
