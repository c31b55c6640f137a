package protocol

// Verdict is what others do about a session.
type Verdict int

// The verdicts.
const (
	// Wait while the session may still work, whatever its Lease looks like.
	Wait Verdict = iota
	// Fence it: empty the holder of its Lease, at the version that was silent. If that works, it can never work again. If the
	// version is another by now, the session lives.
	Fence
	// Bury it, if it is in the table.
	Bury
)

// Judge returns what to do about the session of a Lease. silent says that no renewal was observed for the lease duration, by the
// observer's own clock, counted from when it saw the last one, or from when it looked first.
//
// A Lease that is gone, or that another holds, is no proof before that: a stranger may have deleted it, and its session works on
// until it hears of it, or is no longer valid.
func Judge(session string, found bool, holder string, silent bool) Verdict {
	switch {
	case !silent:
		return Wait
	case Fenced(session, found, holder):
		return Bury
	default:
		return Fence
	}
}

// Fenced tells from a session's Lease that the session cannot be renewed any more: the Lease is gone, or another holds it. holder is
// that of the Lease, and does not matter if the Lease was not found.
func Fenced(session string, found bool, holder string) bool {
	return !found || holder != session
}
