package mcqueue_test

import (
	"fmt"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// A change in one cluster does not wait for the backlog of another, and a cluster that is paused holds up nobody.
func ExampleQueue() {
	q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
	defer q.ShutDown()
	add := func(cluster mcreconcile.ClusterName, name string) {
		r := mcreconcile.Request{ClusterName: cluster}
		r.Name = name
		q.Add(r)
	}
	add("busy", "a")
	add("busy", "b")
	add("busy", "c")
	add("away", "x")
	add("quiet", "change")
	q.Pause("away")
	for range 4 {
		r, _ := q.Get()
		fmt.Println(r.ClusterName, r.Name)
		q.Done(r)
	}
	q.Resume("away")
	r, _ := q.Get()
	fmt.Println(r.ClusterName, r.Name)
	// Output:
	// busy a
	// quiet change
	// busy b
	// busy c
	// away x
}
