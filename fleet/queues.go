package fleet

import "maps"

// QueueStats are the figures of one member in the queue of one controller.
type QueueStats struct {
	// Depth is how many requests are ready, with those that are parked; InFlight how many are being reconciled.
	Depth    int `json:"depth"`
	InFlight int `json:"inFlight"`
	// Paused tells that the requests are parked.
	Paused bool `json:"paused"`
}

// AddQueue makes [Fleet.Queues] show the queue of a controller, until remove is called. stats must not wait for anything.
// Controllers that mcbuilder builds call it.
func (f *Fleet) AddQueue(controller string, stats func(ClusterName) QueueStats) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues == nil {
		f.queues = map[string]*queue{}
	}
	q := &queue{stats}
	f.queues[controller] = q
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.queues[controller] == q {
			delete(f.queues, controller)
		}
	}
}

type queue struct{ stats func(ClusterName) QueueStats }

// Queues returns the figures of a member in the queues of the controllers that run, by the controllers' names.
func (f *Fleet) Queues(name ClusterName) map[string]QueueStats {
	f.mu.Lock()
	queues := maps.Clone(f.queues)
	f.mu.Unlock()
	// Without the lock, which a queue may take while it holds its own.
	all := make(map[string]QueueStats, len(queues))
	for controller, q := range queues {
		all[controller] = q.stats(name)
	}
	return all
}
