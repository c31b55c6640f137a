package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Sample is what a process holds at one moment.
type Sample struct {
	// Heap and RSS are in bytes. What is garbage was collected, and given back to the operating system.
	Heap, RSS float64
	// Stacks is the part of RSS that goroutines' stacks take, in bytes.
	Stacks     float64
	Goroutines int
	// Series is how many metric series controller-runtime's registry has.
	Series int
}

func takeSample() (Sample, error) {
	var s Sample
	families, err := metrics.Registry.Gather()
	if err != nil {
		return s, fmt.Errorf("gathering metrics: %w", err)
	}
	for _, family := range families {
		s.Series += len(family.GetMetric())
	}
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	s.Heap, s.Stacks, s.Goroutines = float64(stats.HeapAlloc), float64(stats.StackSys), runtime.NumGoroutine()
	s.RSS, err = residentBytes()
	return s, err
}

// UsedCPU returns the CPU time that the process has used since it began.
func UsedCPU() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// residentBytes reads the resident set, which Linux alone tells.
func residentBytes() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the resident set size: %w", err)
	}
	_, rest, found := bytes.Cut(status, []byte("VmRSS:"))
	var kilobytes float64
	if _, err := fmt.Sscan(string(rest), &kilobytes); !found || err != nil {
		return 0, errors.New("/proc/self/status has no VmRSS")
	}
	return kilobytes * 1024, nil
}

// writeProfiles writes path.heap.pprof, for go tool pprof, and path.goroutines.txt.
func writeProfiles(path string) error {
	runtime.GC()
	write := func(profile, end string, debug int) error {
		file, err := os.Create(path + end) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		return errors.Join(pprof.Lookup(profile).WriteTo(file, debug), file.Close())
	}
	return errors.Join(write("heap", ".heap.pprof", 0), write("goroutine", ".goroutines.txt", 1))
}
