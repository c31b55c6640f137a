package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// entry is what an inventory service knows of a cluster.
type entry struct {
	Name, Server, Token string
	CA                  []byte
	Labels              map[string]string
}

// member returns the cluster as the fleet wants it described.
func (e entry) member() fleet.Member {
	m := fleet.Member{Name: fleet.ClusterName(e.Name), Labels: e.Labels}
	if e.Server == "" {
		m.Err = errors.New("the inventory has no server for it")
		return m
	}
	m.Config = &rest.Config{Host: e.Server, BearerToken: e.Token, TLSClientConfig: rest.TLSClientConfig{CAData: e.CA}}
	return m
}

// inventory returns a provider that asks a service for the list of clusters, again and again.
func inventory(client *http.Client, url string, every time.Duration) fleet.Provider {
	return fleet.NewProvider("inventory", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		var known []entry
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			entries, err := ask(ctx, client, url)
			if err == nil {
				err = report(members, known, entries)
				known = entries
			}
			if err != nil && ctx.Err() == nil {
				logf.FromContext(ctx).Error(err, "The inventory is not followed; trying again", "url", url)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// ask returns the list that the service answers with.
func ask(ctx context.Context, client *http.Client, url string) (entries []entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the service answered %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&entries)
	return entries, err
}

// report tells the fleet what there is, and what is there no longer.
func report(members fleet.Members, before, now []entry) error {
	var errs []error
	there := map[fleet.ClusterName]bool{}
	for _, e := range now {
		m := e.member()
		if there[m.Name] {
			continue // of two with one name, the first counts
		}
		there[m.Name] = true
		errs = append(errs, members.Set(m)) // the same again changes nothing
	}
	for _, e := range before {
		if name := fleet.ClusterName(e.Name); !there[name] {
			members.Remove(name)
		}
	}
	return errors.Join(errs...)
}

// A provider of one's own is a function that reports members, and withdraws them.
func ExampleNewProvider() {
	answers := make(chan string, 2)
	answers <- `[{"Name": "east", "Server": "https://east.example"}, {"Name": "west", "Server": ""}]`
	answers <- `[{"Name": "east", "Server": "https://east.example"}]`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, <-answers) }))
	defer service.Close()

	ctx, stop := context.WithCancel(context.Background())
	err := inventory(service.Client(), service.URL, time.Millisecond).Run(ctx, nil, printer{stop})
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

func (p printer) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	fmt.Printf("%s is about to leave\n", m.Name)
	return nil, nil
}

func (p printer) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	fmt.Printf("%s has left\n", name)
	p.stop()
	return nil
}

func (p printer) SetProblem(problem fleet.Problem) {
	fmt.Printf("%s: %s\n", problem.About, problem.Message)
}
