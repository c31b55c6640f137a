package mctest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// A program that is no test starts a fleet with New, and closes it.
func ExampleNew() {
	fleet, err := mctest.New(context.Background(), mctest.Options{Clusters: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = fleet.Close() }()

	fmt.Println("local cluster:", fleet.Local.Config().Host)
	for _, member := range fleet.Members {
		fmt.Println(member.Name, member.Config().Host)
	}
}
