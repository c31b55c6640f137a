package fleet

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// outage counts what is down in a fleet: the members that are Unreachable or fail to connect, or the kinds that members do not
// serve or may not be listed there. They are asked at a rate that is the fleet's and not each one's: however many they are, they cost no more CPU time, and
// members no more look-ups of names.
type outage struct{ down atomic.Int64 }

// askDown is how many of what is down are asked a second at most, all together. A thousand are asked within ten
// seconds. This bounds what an outage costs, however long it lasts.
const askDown = 100

// patience is for how many turns a probe may wait for an answer. What costs is to begin one: half a millisecond of CPU time,
// most of it for a connection and the keys of its TLS handshake. A server that thaws answers one that waits at once.
const patience = 3

// pause returns how long one that is down is left alone between the beginnings of two questions, and no less than
// least. As all pause for as long, the one that was asked longest ago is asked next.
func (o *outage) pause(least time.Duration) time.Duration {
	return max(least, jittered(time.Duration(o.down.Load())*time.Second/askDown))
}

// jittered lengthens or shortens a pause by up to a tenth, so that members that went down together are not asked in step.
func jittered(pause time.Duration) time.Duration {
	return pause + time.Duration((rand.Float64()-0.5)/5*float64(pause)) //nolint:gosec // it hides nothing
}
