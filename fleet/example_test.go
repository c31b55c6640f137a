package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// A guest is a connection to a member for once, whatever its state. It has to be described.
func ExampleFleet_Guest() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	guest, err := run(ctx, east(nil)).Guest(ctx, "east")
	if err != nil {
		fmt.Println(fleet.ReasonOf(err))
		return
	}
	namespaces := &corev1.NamespaceList{}
	fmt.Println(guest.Identity(), guest.Client().List(guest.Context(), namespaces))
	// Output: Invalid
}

// issuer is a provider of members whose tokens come from a service.
type issuer struct {
	token   func(ctx context.Context, name fleet.ClusterName) (string, error)
	members fleet.Members // set before the first member is reported
}

func (i *issuer) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	i.members = members
	if err := i.Refresh(ctx, "east"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Refresh reports the member with another token.
func (i *issuer) Refresh(ctx context.Context, name fleet.ClusterName) error {
	token, err := i.token(ctx, name)
	if err != nil {
		return err
	}
	config := &rest.Config{Host: "https://" + string(name) + ".example.com", BearerToken: token}
	return i.members.Set(fleet.Member{Name: name, Config: config})
}

// A provider that can get fresh credentials is asked for them when a member's server refuses those that it has.
func ExampleRefresher() {
	var _ fleet.Refresher = &issuer{}
}

// Members across an ocean are given more time.
func ExampleHealthOptions() {
	f := fleet.New(fleet.Options{Health: fleet.HealthOptions{ProbeTimeout: 10 * time.Second, FailureThreshold: 5}})
	_ = f
}

// The identity of a cluster tells whether two ways lead to one.
func ExampleReadIdentity() {
	same := func(ctx context.Context, a, b client.Reader) (bool, error) {
		one, err := fleet.ReadIdentity(ctx, a)
		if err != nil {
			return false, err
		}
		other, err := fleet.ReadIdentity(ctx, b)
		return one == other, err
	}
	_ = same
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

// A program drains the members that it is told to, before they are connected.
func ExampleFleet_HoldBy() {
	held := map[fleet.ClusterName]fleet.Hold{"west": {Drained: true, Reason: "it is being moved"}}
	f := fleet.New(fleet.Options{})
	f.HoldBy(func(name fleet.ClusterName) fleet.Hold { return held[name] }) // a map that changes needs a lock
	fmt.Println(f.List(nil))
	// Output: []
}

// What the page of a member shows can be had by a program.
func ExampleFleet_History() {
	f := fleet.New(fleet.Options{})
	show := func(history []fleet.Transition, kinds []fleet.KindState) { fmt.Println(len(history), len(kinds)) }
	show(f.History("east"), f.Kinds("east"))
	// Output: 0 0
}
