package mctest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process is one program of a control plane. Its methods must not be called concurrently for one process.
type Process struct {
	what    string // "the API server of member-1"
	pidFile string
	// start runs the program and returns once it is ready; wait returns once the program that was killed is gone.
	start, wait func() error
	running     bool
	frozen      bool
}

// Stop kills the process (SIGKILL) and returns once it is gone. Its address, certificates and data stay for
// [Process.Restart]. Stopping a stopped process does nothing.
func (p *Process) Stop() error {
	if !p.running {
		return nil
	}
	if _, err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if err := p.wait(); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("waiting for the end of %s: %w", p.what, err)
	}
	p.running, p.frozen = false, false
	return os.Remove(p.pidFile)
}

// Restart starts the process again at the same address, with the same certificates and data, and returns once it is
// ready. A process that runs, or is frozen, is stopped first.
func (p *Process) Restart() error {
	if err := p.Stop(); err != nil {
		return err
	}
	if err := p.start(); err != nil {
		return fmt.Errorf("starting %s again: %w", p.what, err)
	}
	p.running = true
	return nil
}

// Freeze suspends the process (SIGSTOP): its connections stay open and nothing answers on them. New connections are
// accepted by the operating system, and nothing answers there either.
func (p *Process) Freeze() error {
	if p.frozen {
		return nil
	}
	pid, err := p.signal(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	// Threads on other cores go on for a moment. A parent is told once all have stopped.
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		_, err = syscall.Wait4(pid, nil, syscall.WUNTRACED, nil)
	}
	if err != nil {
		return fmt.Errorf("waiting until %s is frozen: %w", p.what, err)
	}
	p.frozen = true
	return nil
}

// Thaw resumes a frozen process (SIGCONT). For one that is not frozen it does nothing.
func (p *Process) Thaw() error {
	if !p.frozen {
		return nil
	}
	if _, err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	p.frozen = false
	return nil
}

// signal sends a signal and returns the ID of the process that it was sent to.
func (p *Process) signal(s syscall.Signal) (pid int, err error) {
	if !p.running {
		return 0, fmt.Errorf("sending %q to %s: it is stopped", s, p.what)
	}
	content, err := os.ReadFile(p.pidFile)
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
	}
	if err == nil {
		err = syscall.Kill(pid, s)
	}
	if err != nil {
		return 0, fmt.Errorf("sending %q to %s: %w", s, p.what, err)
	}
	return pid, nil
}

// writeWrapper writes a script to dir, the folder of a reaper, that runs program in its own place and leaves the process's
// ID in the file NAME.pid, since envtest does not tell it. Once the reaper has begun to kill, it runs nothing. The program
// collects garbage half as often as by default: to start takes a fifth less CPU time then, for 40 MB of memory.
func writeWrapper(dir, program string) (wrapper, pidFile string, err error) {
	wrapper = filepath.Join(dir, filepath.Base(program))
	pidFile = wrapper + ".pid"
	script := "#!/bin/sh\n" +
		"if [ \"$1\" != --help ]; then\n" +
		"	echo $$ >" + shellQuote(pidFile) + " && [ -e " + shellQuote(filepath.Join(dir, mayStart)) + " ] || exit 1\n" +
		"fi\n" +
		"export GOGC=\"${GOGC:-200}\"\n" +
		"exec " + shellQuote(program) + " \"$@\"\n"

	// A process that is forked meanwhile would hold the script open for writing, and it could not be run ("text file
	// busy", golang.org/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return wrapper, pidFile, os.WriteFile(wrapper, []byte(script), 0o700) //nolint:gosec // it is to be run
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
