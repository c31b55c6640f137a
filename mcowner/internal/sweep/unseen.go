package sweep

import (
	"fmt"
	"sync"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

const (
	// mostUnseen is how many owners are remembered that nobody saw go: some ten megabytes.
	mostUnseen = 1 << 16
	// longestUID is that of what is remembered. Those of Kubernetes have 36 characters; references may say anything.
	longestUID = 64
)

// unseen remembers owners that are gone, and that nobody saw go: none comes back with its UID, and so each is asked for once, however
// many dependents of it stay. The zero value is usable.
type unseen struct {
	mu   sync.Mutex // guards gone
	gone map[ownerKey]string
}

// has returns an error that says why nothing is proved by an owner that is known to be gone.
func (u *unseen) has(owner mcowner.Reference) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	why, known := u.gone[ownerKeyOf(owner)]
	if !known {
		return nil
	}
	return unseenBecause(why)
}

// note remembers an owner that is gone, and returns why that proves nothing.
func (u *unseen) note(owner mcowner.Reference, why string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone == nil || len(u.gone) >= mostUnseen {
		u.gone = map[ownerKey]string{} // they are asked for again
	}
	if len(owner.UID) <= longestUID {
		u.gone[ownerKeyOf(owner)] = why
	}
	return unseenBecause(why)
}

func unseenBecause(why string) error {
	return fmt.Errorf("%w: %s, and nobody saw how it was deleted", errUnproven, why)
}
