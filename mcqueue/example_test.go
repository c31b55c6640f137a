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

// A cluster with a weight of two has two requests handed out at each of its turns.
func ExampleQueue_SetWeight() {
	q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
	defer q.ShutDown()
	q.SetWeight("production", 2)
	for _, cluster := range []mcreconcile.ClusterName{"production", "staging"} {
		for _, name := range []string{"a", "b", "c"} {
			r := mcreconcile.Request{ClusterName: cluster}
			r.Name = name
			q.Add(r)
		}
	}
	for range 6 {
		r, _ := q.Get()
		fmt.Println(r.ClusterName, r.Name)
		q.Done(r)
	}
	// Output:
	// production a
	// production b
	// staging a
	// production c
	// staging b
	// staging c
}

// A request runs from when it is handed out until it is done.
func ExampleQueue_Running() {
	q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
	defer q.ShutDown()
	q.Add(mcreconcile.Request{ClusterName: "east"})
	req, _ := q.Get()
	show := func(running []mcqueue.Running) { fmt.Println(len(running)) }
	show(q.Running("east"))
	q.Done(req)
	show(q.Running("east"))
	// Output:
	// 1
	// 0
}
