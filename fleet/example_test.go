package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// entry is what an inventory service knows of a cluster.
type entry struct {
	Name, Server, Token string
	CA                  []byte
	Labels              map[string]string
}

// inventory returns a provider that asks a service for the list of clusters, again and again.
func inventory(url string, every time.Duration) fleet.Provider {
	return fleet.ProviderFunc(func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		known := map[fleet.ClusterName]bool{}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			entries, err := ask(ctx, url)
			if err == nil {
				err = report(ctx, members, known, entries)
			}
			if err != nil && ctx.Err() == nil {
				log.Printf("inventory %s: %v", url, err) // what was reported stays as it is
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// report tells the fleet what changed since the last time.
func report(ctx context.Context, members fleet.Members, known map[fleet.ClusterName]bool, entries []entry) error {
	left := maps.Clone(known)
	errs := make([]error, 0, len(entries))
	for _, e := range entries {
		m := fleet.Member{Name: fleet.ClusterName(e.Name), Labels: e.Labels}
		if e.Server == "" {
			m.Err = errors.New("the inventory has no server for it")
		} else {
			m.Config = &rest.Config{Host: e.Server, BearerToken: e.Token, TLSClientConfig: rest.TLSClientConfig{CAData: e.CA}}
		}
		errs = append(errs, members.Set(m)) // the same again changes nothing
		known[m.Name] = true
		delete(left, m.Name)
	}
	for name := range left {
		errs = append(errs, members.Remove(ctx, name)) // waits until the member is drained
		delete(known, name)
	}
	return errors.Join(errs...)
}

func ask(ctx context.Context, url string) (entries []entry, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return entries, json.NewDecoder(resp.Body).Decode(&entries)
}

// A provider of one's own is a function that reports members, and withdraws them.
func ExampleProviderFunc() {
	answers := make(chan string, 2)
	answers <- `[{"Name": "east", "Server": "https://east.example"}, {"Name": "west", "Server": ""}]`
	answers <- `[{"Name": "east", "Server": "https://east.example"}]`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, <-answers) }))
	defer service.Close()

	ctx, stop := context.WithCancel(context.Background())
	err := inventory(service.URL, time.Millisecond).Run(ctx, nil, printer{stop})
	fmt.Println(err)
	// Output:
	// east is at https://east.example
	// west: the inventory has no server for it
	// east is at https://east.example
	// west has left
	// <nil>
}

// printer is a fleet that prints what it is told, and has the provider stop at the first removal.
type printer struct{ stop func() }

func (p printer) Set(m fleet.Member) error {
	if m.Config == nil {
		fmt.Printf("%s: %v\n", m.Name, m.Err)
		return nil
	}
	fmt.Printf("%s is at %s\n", m.Name, m.Config.Host)
	return nil
}

func (p printer) Remove(_ context.Context, name fleet.ClusterName) error {
	fmt.Printf("%s has left\n", name)
	p.stop()
	return nil
}

// run returns a running fleet, once it has found out about its one member, which has an empty kubeconfig.
func run(ctx context.Context) *fleet.Fleet {
	f := fleet.New(fleet.Options{}) // a manager has one and runs it: mgr.GetFleet()
	go func() { _ = f.Start(ctx) }()
	if err := f.Set(fleet.Member{Name: "east", Err: errors.New("the kubeconfig is empty")}); err != nil {
		log.Fatal(err)
	}
	for name := range f.Changes(ctx) {
		if status, _ := f.Status(name); status.Reason != "" {
			break
		}
	}
	return f
}

// What a member lacks to be Ready is a state that can be read, never an error that stops the manager.
func ExampleFleet_List() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, status := range run(ctx).List(nil) {
		fmt.Printf("%s is %s (%s): %s\n", status.Name, status.State, status.Reason, status.Message)
	}
	// Output: east is Pending (Invalid): the kubeconfig is empty
}

// Asking for a member that cannot be used says why.
func ExampleStateError() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f := run(ctx)
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
	f := run(ctx)
	for name := range f.Changes(ctx) {
		status, known := f.Status(name)
		if !known {
			fmt.Println(name, "has left")
			break
		}
		if status.State == fleet.Pending {
			fmt.Println(name, "waits")
			go func() { _ = f.Remove(ctx, name) }()
		}
	}
	// Output:
	// east waits
	// east has left
}
