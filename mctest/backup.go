package mctest

import (
	"os"
	"path/filepath"
	"testing"
)

// Backup copies the storage of the control plane, and returns what puts it back to this moment, as an administrator does
// after a disaster: objects that were written since are gone, or as they were, and their versions are counted once more.
// Both stop the control plane while they work, and return when it runs again. restore may be called more than once.
func (cp *ControlPlane) Backup(tb testing.TB) (restore func()) {
	tb.Helper()
	data := cp.server.env.ControlPlane.Etcd.DataDir
	saved := filepath.Join(tb.TempDir(), "etcd")
	cp.whileStopped(tb, func() error { return os.CopyFS(saved, os.DirFS(data)) })
	return func() {
		tb.Helper()
		cp.whileStopped(tb, func() error {
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			if err := os.CopyFS(data, os.DirFS(saved)); err != nil {
				return err
			}
			return os.Chmod(data, 0o700) //nolint:gosec // etcd insists on it, and it is a folder
		})
	}
}

func (cp *ControlPlane) whileStopped(tb testing.TB, do func() error) {
	tb.Helper()
	must(tb, cp.APIServer.Stop())
	must(tb, cp.Etcd.Stop())
	must(tb, do())
	must(tb, cp.Etcd.Restart())
	must(tb, cp.APIServer.Restart())
}
