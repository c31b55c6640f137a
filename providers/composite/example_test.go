package composite_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/composite"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

// Both providers know an "east". The prefixes tell them apart.
func ExampleProvider() {
	provider := composite.Provider{
		"aws": static.Provider{
			{Name: "east", Config: &rest.Config{Host: "https://east.aws.example"}},
			{Name: "west", Config: &rest.Config{Host: "https://west.aws.example"}},
		},
		"lab": static.Provider{
			{Name: "east", Config: &rest.Config{Host: "https://east.lab.example"}},
		},
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f := fleet.New(fleet.Options{}) // a manager has one, and runs the provider
	go func() { _ = f.Run(ctx, nil, provider) }()
	for range f.Changes(ctx) {
		if members := f.List(nil); len(members) == 3 {
			for _, member := range members {
				fmt.Println(member.Name)
			}
			break
		}
	}
	// Output:
	// aws#east
	// aws#west
	// lab#east
}
