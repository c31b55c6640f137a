package mcqueue

// workers are those that wait for a request. The one that began to wait last is woken first: what it needs is more likely
// to be in a CPU's caches still, and those that are not needed are left alone. It is guarded by the queue's lock.
type workers struct {
	idle  *worker // the last one, which leads to the one before
	woken *worker // are told once the queue is unlocked
	spare *worker // in no use

	coming int // were woken, and do not look yet
}

// worker is one that waits.
type worker struct {
	wake chan struct{} // has room for the one call that ends the wait
	next *worker
}

// wait returns what the caller has to wait for, after it has unlocked the queue. Then it calls waited.
func (w *workers) wait() *worker {
	one := w.spare
	if one == nil {
		one = &worker{wake: make(chan struct{}, 1)}
	} else {
		w.spare = one.next
	}
	one.next, w.idle = w.idle, one
	return one
}

// waited takes back what was waited for.
func (w *workers) waited(one *worker) {
	one.next, w.spare = w.spare, one
	w.coming--
}

// wakeOne chooses the worker to be woken, if one waits.
func (w *workers) wakeOne() {
	if one := w.idle; one != nil {
		w.idle = one.next
		one.next, w.woken = w.woken, one
		w.coming++
	}
}

func (w *workers) wakeAll() {
	for w.idle != nil {
		w.wakeOne()
	}
}

// chosen returns those that were chosen since it was called last, which are to be told.
func (w *workers) chosen() *worker {
	woken := w.woken
	w.woken = nil
	return woken
}

// tell ends the wait of a worker, and of those that it leads to.
func (w *worker) tell() {
	for w != nil {
		next := w.next // the worker may wait again at once
		w.wake <- struct{}{}
		w = next
	}
}
