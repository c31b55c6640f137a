package mctest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// reaperScript waits for the end of its standard input, which comes with the end of the process that holds the other
// end, however that ends. It then kills what left a process ID in the folder, and removes the folder.
//
// A program may be about to start meanwhile. It leaves its process ID before it looks whether it may, so either it sees
// that it may not, or its ID is seen here.
const reaperScript = `
trap '' HUP INT TERM
cat >/dev/null
rm -f "$1/` + mayStart + `"
for file in "$1"/*.pid; do
	[ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
done
for try in 1 2 3 4 5 6 7 8 9 10; do # a program that is ending may still write
	rm -rf "$1" 2>/dev/null && exit
	sleep 0.1
done
exit 1
`

// mayStart is a file in the folder of a reaper. Programs start there for as long as it exists.
const mayStart = "may-start"

// reaper makes sure that no process of a control plane and none of its files outlive this process.
type reaper struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer

	// close kills what still runs, removes the folder, and returns once both are done. It may be called repeatedly.
	close func() error
}

// startReaper makes a folder and the process that clears it.
func startReaper() (*reaper, error) {
	dir, err := os.MkdirTemp("", "mctest-")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, mayStart), nil, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// The script ends with its standard input, so no context ends it.
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "mctest-reaper", dir) //nolint:noctx,gosec // see above
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                    // an interrupt at the terminal is not for it
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("starting the process that clears %s: %w", dir, err)
	}
	r := &reaper{dir: dir, cmd: cmd, stdin: stdin}
	r.close = sync.OnceValue(r.end)
	return r, nil
}

func (r *reaper) end() error {
	if err := r.stdin.Close(); err != nil {
		return err
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("removing %s: %w", r.dir, err)
	}
	return nil
}
