package mctest

import (
	"errors"
	goflag "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
	"github.com/fleet-runtime/fleet-runtime/mctest/internal/rbacfile"
)

// ledger is what all accounts of a suite have needed. The zero value is empty.
type ledger struct {
	mu    sync.Mutex // guards what follows
	files map[string]*entry
}

// entry is what the accounts of one manifest have needed.
type entry struct {
	file *rbacfile.File

	asked, needed map[rights.Right]bool
}

// add adds what an account has needed.
func (l *ledger) add(d declared, asked []rights.Right) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files == nil {
		l.files = map[string]*entry{}
	}
	e := l.files[d.path]
	if e == nil {
		e = &entry{file: d.file, asked: map[rights.Right]bool{}, needed: map[rights.Right]bool{}}
		l.files[d.path] = e
	}
	for _, r := range asked {
		e.asked[r] = true
	}
	for _, r := range d.needed {
		e.needed[r] = true
	}
}

func (e *entry) demand() rbacfile.Demand {
	return rbacfile.Demand{Asked: slices.Collect(maps.Keys(e.asked)), Needed: slices.Collect(maps.Keys(e.needed))}
}

// settle is called when the tests of a suite have ended. It says what manifests give too much, if all tests have passed, or changes
// the manifests. If some have failed, what they would have needed is not known, and nothing is taken away.
func (l *ledger) settle(passed bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return nil
	}
	isWhole := passed && !choosesTests()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(l.files)) {
		switch e := l.files[path]; {
		case updatesRights():
			errs = append(errs, e.update(path, isWhole))
		case isWhole:
			errs = append(errs, e.judge(path))
		}
	}
	return errors.Join(errs...)
}

// judge says what the manifest gives too much.
func (e *entry) judge(path string) error {
	if much := e.file.TooMuch(e.demand()); len(much) > 0 {
		return fmt.Errorf("%s gives more than the tests have needed:\n\t%s\n%s", path, strings.Join(much, "\n\t"), howToUpdate)
	}
	return nil
}

// update changes the manifest.
func (e *entry) update(path string, mayTake bool) error {
	before := e.file.Bytes()
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if err := e.file.Update(e.demand(), mayTake, name); err != nil {
		return fmt.Errorf("changing %s: %w", path, err)
	}
	if slices.Equal(before, e.file.Bytes()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for all to read, as the manifest
		return err
	}
	fmt.Fprintln(os.Stderr, "mctest: changed", path)
	return os.WriteFile(path, e.file.Bytes(), 0o644) //nolint:gosec // a manifest, for all to read
}

// choosesTests reports whether flags leave tests out, so that what the others would have needed is not known.
func choosesTests() bool {
	for _, name := range []string{
		"test.run", "test.skip", "ginkgo.focus", "ginkgo.skip", "ginkgo.focus-file", "ginkgo.skip-file", "ginkgo.label-filter",
	} {
		if f := goflag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	parallel := goflag.Lookup("ginkgo.parallel.total") // processes, each with a part of the specs
	return testing.Short() || parallel != nil && parallel.Value.String() != "1"
}
