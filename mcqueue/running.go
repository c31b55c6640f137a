package mcqueue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Running is a request that is being reconciled.
type Running struct {
	Request string `json:"request"`
	// Since is when it was handed out.
	Since time.Time `json:"since"`
	// Silent tells that it waits for a cluster that has not answered so far.
	Silent bool `json:"silent,omitempty"`
}

// Running returns the requests of a cluster that are in flight, the oldest first.
func (q *Queue[request]) Running(name mcreconcile.ClusterName) []Running {
	flights := q.flightsOf(name)
	all := make([]Running, 0, len(flights))
	for req, f := range flights {
		all = append(all, Running{Request: fmt.Sprint(req), Since: q.begin.Add(f.since), Silent: f.silent})
	}
	slices.SortFunc(all, func(a, b Running) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Request, b.Request)) })
	return all
}

// flightsOf returns copies, so that the text of a request, which is made by its own code, is not made with the queue locked.
func (q *Queue[request]) flightsOf(name mcreconcile.ClusterName) map[request]flight[request] {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := map[request]flight[request]{}
	for req, f := range q.order.flights.all {
		if f.lane.cluster.name == name {
			of[req] = *f
		}
	}
	return of
}
