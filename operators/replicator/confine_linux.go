package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable is this program, also where its file was replaced.
const executable = "/proc/self/exe"

// confined lets a command end with this program, however that ends. It would also end with the thread that starts it, and Go keeps its threads.
func confined(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// confine lets this process take so much more memory than it has now, in bytes. More of it ends the process. Writing to files does too, and it
// opens few.
func confine(memory uint64) error {
	has, err := dataOf()
	if err != nil {
		return err
	}
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_DATA: has + memory, syscall.RLIMIT_FSIZE: 0, syscall.RLIMIT_CORE: 0, syscall.RLIMIT_NOFILE: 16,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	debug.SetMemoryLimit(int64(memory / 4 * 3)) //nolint:gosec // there is no such memory
	runtime.GOMAXPROCS(1)
	return nil
}

// dataOf returns how much memory this process may write to, in bytes: what RLIMIT_DATA counts.
func dataOf() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var pages [6]uint64 // the last is of data
	_, err = fmt.Sscan(string(text), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5])
	return pages[5] * uint64(os.Getpagesize()), err //nolint:gosec // pages have a size
}

// cpuOf returns how much of processors' time a process of ours has taken, none if it has ended.
func cpuOf(pid int) time.Duration {
	var taken unix.Timespec
	clock := int32(^pid<<3 | 2) //nolint:gosec // the clock of a process, as clock_getcpuclockid(3) makes it
	if err := unix.ClockGettime(clock, &taken); err != nil {
		return 0
	}
	return time.Duration(taken.Nano())
}
