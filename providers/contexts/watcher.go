package contexts

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must have changed before files are read. A program that writes a file takes less between two writes.
	quiet = 100 * time.Millisecond
	// mostDelay bounds the wait for quiet.
	mostDelay = time.Second
)

// watcher tells of changes in folders, as far as the system does. The rest is found at the next reading.
type watcher struct {
	notify   *fsnotify.Watcher // nil if there can be none
	changes  <-chan fsnotify.Event
	losses   <-chan error // changes of which nothing more is known
	problems problems     // why changes may go unnoticed
}

func newWatcher() *watcher {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return &watcher{problems: problems{"the watch of files": {ReasonNotWatched, err}}}
	}
	return &watcher{notify: notify, changes: notify.Events, losses: notify.Errors}
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// follow watches these folders, and no others. A folder that was removed and made again is watched anew.
func (w *watcher) follow(folders folders) {
	if w.notify == nil {
		return
	}
	w.problems = problems{}
	watched := w.notify.WatchList()
	for _, folder := range watched {
		if _, ok := folders[folder]; !ok {
			_ = w.notify.Remove(folder) // of a folder that is gone the watch is gone too
		}
	}
	for folder := range folders {
		if slices.Contains(watched, folder) {
			continue
		}
		// If it is gone by now, then the folder that it was in tells of that.
		if err := w.notify.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.problems.addFor(ReasonNotWatched, "the watch of "+folder, err)
		}
	}
}

// wait returns true when something has changed and it is quiet again, or when atMost has passed; false when ctx is done.
func (w *watcher) wait(ctx context.Context, atMost time.Duration) bool {
	over := time.NewTimer(atMost)
	defer over.Stop()
	var latest time.Time // the end of the wait for quiet
	for {
		select {
		case <-w.changes:
		case <-w.losses: //nolint:errcheck // whatever it was, all is read now
		case <-over.C:
			return true
		case <-ctx.Done():
			return false
		}
		if latest.IsZero() {
			latest = time.Now().Add(mostDelay)
		}
		over.Reset(min(quiet, time.Until(latest)))
	}
}
