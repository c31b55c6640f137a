package fleet

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// outage counts the members of a fleet that are down: Unreachable, or failing to connect. They are asked at a rate that is
// the fleet's and not each one's: however many they are, they cost no more CPU time and no more look-ups of names.
type outage struct{ down atomic.Int64 }

// askDown is how many members that are down are asked a second, all together. To ask one that does not answer costs 0.2
// to 0.4 ms of CPU time, most of it for the keys of a TLS handshake, so this bounds what an outage costs, however long it
// lasts. A thousand members are asked within ten seconds.
const askDown = 100

// pause returns how long a member that is down is left alone between the beginnings of two questions, and no less than
// least. As all pause for as long, the one that was asked longest ago is asked next.
func (o *outage) pause(least time.Duration) time.Duration {
	return max(least, jittered(time.Duration(o.down.Load())*time.Second/askDown))
}

// jittered lengthens or shortens a pause by up to a tenth, so that members that went down together are not asked in step.
func jittered(pause time.Duration) time.Duration {
	return pause + time.Duration((rand.Float64()-0.5)/5*float64(pause)) //nolint:gosec // it hides nothing
}
