package demo

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logFile takes what the manager and client-go log, so that it does not tear the table.
type logFile struct {
	path string
	keep bool
	file *os.File
}

// openLog has everything logged to the given file or, without one, to a new one that discard removes.
func openLog(path string) (*logFile, error) {
	file, err := createLog(path)
	if err != nil {
		return nil, fmt.Errorf("opening a file for the log: %w", err)
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(file, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return &logFile{path: file.Name(), keep: path != "", file: file}, nil
}

func createLog(path string) (*os.File, error) {
	if path != "" {
		return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	}
	return os.CreateTemp("", "quickstart-*.log")
}

// discard removes the file unless the user has asked for it.
func (l *logFile) discard() {
	if !l.keep {
		_ = os.Remove(l.path) // it lies in the folder for temporary files
	}
}

// leave keeps the file, which may tell the reason of a failure, unless it is empty.
func (l *logFile) leave(stderr io.Writer) {
	if info, err := l.file.Stat(); err == nil && info.Size() == 0 {
		l.discard()
		return
	}
	_, _ = fmt.Fprintln(stderr, "quickstart: the log is in", l.path)
}
