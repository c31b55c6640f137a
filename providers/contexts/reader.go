package contexts

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reader reads the files of a provider. What was in a file is kept for the time when it cannot be read.
type reader struct {
	provider Provider
	together []string            // the paths of the files that are taken together
	elements []string            // Provider.Files, as absolute paths
	listed   map[string][]string // the paths that each element stood for
	files    map[string]*file    // by path; those that exist
	folders  folders             // where to watch for changes of what was read
}

func newReader(p Provider) (*reader, error) {
	r := &reader{provider: p, listed: map[string][]string{}}
	var err error
	if r.together, err = absolute(p.kubeconfig()); err != nil {
		return nil, err
	}
	r.elements, err = absolute(p.Files)
	return r, err
}

func absolute(paths []string) ([]string, error) {
	all := make([]string, 0, len(paths))
	for _, path := range paths {
		if path == "" {
			continue // as kubectl does with an empty element of KUBECONFIG
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		all = append(all, path)
	}
	return all, nil
}

// read reads all files, and returns what they say.
func (r *reader) read() finding {
	before := r.files
	r.files, r.folders = map[string]*file{}, folders{}
	found, unread := newFinding(), problems{}
	merged := r.use(r.together, nil, before, unread)
	if len(merged) == 0 && len(r.together) > 0 {
		unread.add(strings.Join(r.together, ", "), errors.New("there is no such file"))
	}
	r.describe(merge(merged), found)
	for _, element := range r.elements {
		paths, away := r.list(element)
		unread.add(element, away)
		for _, f := range r.use(paths, away, before, unread) {
			r.describe(merge([]*file{f}), found)
		}
	}
	r.describeMissing(found, unread)
	maps.Copy(found.problems, unread)
	return found
}

// use reads the files that exist, except those that another element has brought already. If away is set, the files that
// do not exist are away, and are used as they were before.
func (r *reader) use(paths []string, away error, before map[string]*file, unread problems) []*file {
	used := make([]*file, 0, len(paths))
	for _, path := range paths {
		r.folders.add(path)
		f := before[path]
		if f == nil {
			f = &file{path: path}
		}
		if r.files[path] != nil || !f.read(away) {
			continue
		}
		r.files[path] = f
		used = append(used, f)
		unread.add(path, f.err)
	}
	return used
}

// list returns the paths that an element of Provider.Files stands for, in their order.
//
// A path that it stood for before is only left out if there is nothing there any more. If a folder cannot be read, nobody
// knows. If the folder is missing in which everything was, it may be one that is not mounted, and its contents are away
// rather than gone: that is the error.
func (r *reader) list(element string) (paths []string, away error) {
	r.folders.add(element)
	info, err := os.Stat(element)
	switch {
	case err == nil && info.IsDir():
		paths, away = r.inFolder(element)
	case err != nil && isPathPattern(element):
		paths, away = r.matching(element)
		if _, err := os.Stat(fixedPart(element)); err != nil {
			away = err
		}
	case errors.Is(err, fs.ErrNotExist):
		away = err
	default:
		paths = []string{element}
	}
	for _, path := range r.listed[element] {
		_, err := os.Stat(path)
		if path != element && (away != nil || err != nil && !errors.Is(err, fs.ErrNotExist)) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	r.listed[element] = slices.Compact(paths)
	return r.listed[element], away
}

// fixedPart returns the folder in which everything is that a pattern can match.
func fixedPart(pattern string) string {
	for isPathPattern(pattern) {
		pattern = filepath.Dir(pattern)
	}
	return pattern
}

// isPathPattern reports whether a path has characters that are special in patterns. A backslash may separate folders.
func isPathPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// inFolder returns the paths of the files in a folder that count. Those of a folder that cannot be read are not lost:
// see list.
func (r *reader) inFolder(folder string) (paths []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		path, name := filepath.Join(folder, e.Name()), e.Name()
		if e.Type()&fs.ModeSymlink != 0 {
			r.folders.add(path) // it may lead to nothing as yet
		}
		temporary := strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".lock")
		if !temporary && isFile(path) {
			paths = append(paths, path)
		}
	}
	return paths, err
}

// matching returns the paths of the files that match the pattern, which is known to be one. The error is that of a folder
// that may have more of them, and cannot be read: filepath.Glob passes over it.
func (r *reader) matching(pattern string) (paths []string, unread error) {
	for folder := pattern; isPathPattern(folder); {
		folder = filepath.Dir(folder)
		existing, _ := filepath.Glob(folder)
		for _, path := range existing {
			r.folders.add(path)
			unread = cmp.Or(unread, readable(path))
		}
	}
	matches, _ := filepath.Glob(pattern)
	return slices.DeleteFunc(matches, func(path string) bool { return !isFile(path) }), unread
}

// readable returns why the names in a folder cannot be read. What is no folder, or not there, has none.
func readable(folder string) error {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // see above
	}
	_, err := os.ReadDir(folder)
	return err
}

// isFile reports whether a path leads to a file, through symbolic links too.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
