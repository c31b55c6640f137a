package sharding_test

import (
	"fmt"
	"log"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// In a pod, options need nothing. These are for a program that runs elsewhere, and for a local cluster that is slow to answer.
func ExampleOptions() {
	var owners fleet.Ownership
	owners, err := sharding.New(sharding.Options{
		ID:            "payments",
		Namespace:     "finance",
		Name:          "payments-1",
		LeaseDuration: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = owners
}

// Members that are reconciled all the time count for more than idle ones.
func ExampleOptions_measure() {
	var owners fleet.Ownership
	owners, err := sharding.New(sharding.Options{ID: "payments", Namespace: "finance", Name: "payments-1", Measure: true})
	if err != nil {
		log.Fatal(err)
	}
	_ = owners
}

var replica *sharding.Replica // of sharding.New

// A page shows what a replica knows of the others.
func ExampleReplica_Status() {
	status := replica.Status()
	if status.State == sharding.Suspended {
		fmt.Println("nothing is sent to members since", status.SuspendedSince)
	}
	for _, one := range status.Replicas {
		fmt.Println(one.Replica, "owns", one.Members, "members")
	}
	for _, move := range status.Moves {
		fmt.Println(move.Members, "members move from", move.From, "to", move.To)
	}
}
