package informer

// done is a DoneChecker.
type done struct {
	name string
	done <-chan struct{}
}

// Name implements DoneChecker.
func (d done) Name() string { return d.name }

// Done implements DoneChecker.
func (d done) Done() <-chan struct{} { return d.done }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
