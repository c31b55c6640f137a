// Package closed makes the channel of what is over already.
package closed

// Channel returns a channel that is closed: what was to be waited for had ended before anybody asked.
func Channel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
