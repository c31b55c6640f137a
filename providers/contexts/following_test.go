package contexts_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

// never is an interval after which no test waits for anything: what it sees was noticed.
const never = time.Hour

func TestChangesOfFilesAreNoticed(t *testing.T) {
	// Each case begins with the files that before makes in an empty folder. Then come steps: a change, and what holds
	// after it.
	type step struct {
		change func(t *testing.T, dir string)
		want   []string
	}
	write := func(name string, contexts ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			put(t, filepath.Join(dir, name), with(contexts...))
		}
	}
	all := func(changes ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, change := range changes {
				change(t, dir)
			}
		}
	}
	overwrite := func(name string, contexts ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(dir, name), text(t, with(contexts...)), 0o600))
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	rename := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
		}
	}
	link := func(target, name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.Symlink(target, path+".new"))
			must(t, os.Rename(path+".new", path))
		}
	}
	for name, tc := range map[string]struct {
		before func(t *testing.T, dir string)
		file   string // Kubeconfig
		files  string // Files
		want   []string
		steps  []step
		// inPlace says that files are written in place. Whoever reads one between its two steps finds an empty file.
		inPlace bool
	}{
		"a file that is replaced": {
			before: write("config", "a"), file: "config", want: []string{"a@a"},
			steps: []step{{write("config", "a", "b"), []string{"a@a", "b@b"}}, {write("config", "b"), []string{"b@b"}}},
		},
		"a file that is written in place": {
			before: write("config", "a"), file: "config", want: []string{"a@a"},
			steps:   []step{{overwrite("config", "a", "b"), []string{"a@a", "b@b"}}, {overwrite("config", "b"), []string{"b@b"}}},
			inPlace: true,
		},
		"a file that comes, goes and comes": {
			file: "config",
			steps: []step{
				{write("config", "a"), []string{"a@a"}},
				{remove("config"), nil},
				{write("config", "b"), []string{"b@b"}},
			},
		},
		"a file whose folders come later": {
			file: "x/y/config",
			steps: []step{
				{write("x/other"), nil},
				{write("x/y/other"), nil},
				{write("x/y/config", "a"), []string{"a@a"}},
			},
		},
		"a file whose folder is removed and made again": {
			before: write("x/y/config", "a"), file: "x/y/config", want: []string{"a@a"},
			steps: []step{
				{remove("x"), nil},
				{write("x/y/config", "b"), []string{"b@b"}},
				{write("x/y/config", "c"), []string{"c@c"}},
			},
		},
		"the folder of a file that is swapped for another": {
			before: all(write("x/config", "a"), write("new/config", "b")), file: "x/config", want: []string{"a@a"},
			steps: []step{
				{all(rename("x", "old"), rename("new", "x")), []string{"b@b"}},
				{write("x/config", "c"), []string{"c@c"}},
			},
		},
		"a symbolic link to a file that is swapped": {
			before: all(write("one/config", "a"), write("two/config", "b"), link("one/config", "link")), file: "link",
			want: []string{"a@a"},
			steps: []step{
				{link("two/config", "link"), []string{"b@b"}},
				{write("two/config", "c"), []string{"c@c"}},
			},
		},
		"a symbolic link to a folder that is swapped": {
			before: all(write("one/x/config", "a"), write("two/x/config", "b"), link("one", "current")), file: "current/x/config",
			want: []string{"a@a"},
			steps: []step{
				{link("two", "current"), []string{"b@b"}},
				{write("two/x/config", "c"), []string{"c@c"}},
			},
		},
		"a symbolic link whose target comes later": {
			before: link("x/config", "link"), file: "link",
			steps: []step{{write("x/config", "a"), []string{"a@a"}}},
		},
		"a mounted Secret, as kubelet writes it": {
			before: all(write("m/..1/k", "a"), link("..1", "m/..data"), link("..data/k", "m/k")), file: "m/k", want: []string{"a@a"},
			steps: []step{
				{all(write("m/..2/k", "b"), link("..2", "m/..data"), remove("m/..1")), []string{"b@b"}},
				{all(write("m/..3/k", "c"), link("..3", "m/..data"), remove("m/..2")), []string{"c@c"}},
			},
		},
		"a folder": {
			before: write("folder/x", "a"), files: "folder", want: []string{"a@a"},
			steps: []step{
				{write("folder/y", "b"), []string{"a@a", "b@b"}},
				{overwrite("folder/y", "b", "c"), []string{"a@a", "b@b", "c@c"}},
				{remove("folder/x"), []string{"b@b", "c@c"}},
				{rename("folder/y", "folder/z"), []string{"b@b", "c@c"}},
			},
			inPlace: true,
		},
		"a single file of Files": {
			before: write("x", "a"), files: "x", want: []string{"a@a"},
			steps: []step{{remove("x"), nil}, {write("x", "b"), []string{"b@b"}}},
		},
		"a folder with a symbolic link whose target comes later": {
			before: all(link("../elsewhere/x", "folder/x"), write("elsewhere/y", "b")), files: "folder",
			steps: []step{{write("elsewhere/x", "a"), []string{"a@a"}}},
		},
		"a folder that comes later": {
			files: "x/folder",
			steps: []step{{write("x/folder/x", "a"), []string{"a@a"}}, {write("x/folder/y", "b"), []string{"a@a", "b@b"}}},
		},
		"a folder that is a mounted Secret": {
			before: all(write("m/..1/k", "a"), link("..1", "m/..data"), link("..data/k", "m/k")), files: "m", want: []string{"a@a"},
			steps: []step{
				{
					all(write("m/..2/k", "b"), write("m/..2/l", "c"), link("..2", "m/..data"), link("..data/l", "m/l"), remove("m/..1")),
					[]string{"b@b", "c@c"},
				},
				{all(write("m/..3/l", "c"), link("..3", "m/..data"), remove("m/k"), remove("m/..2")), []string{"c@c"}},
			},
		},
		"a pattern": {
			before: write("east/kubeconfig", "a"), files: "*/kubeconfig", want: []string{"a@a"},
			steps: []step{
				{write("west/kubeconfig", "b"), []string{"a@a", "b@b"}},
				{write("east/other", "c"), []string{"a@a", "b@b"}},
				{write("east/kubeconfig", "d"), []string{"b@b", "d@d"}},
				{remove("west"), []string{"d@d"}},
				{rename("east", "west"), []string{"d@d"}},
				{write("west/kubeconfig", "e"), []string{"e@e"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tc.before != nil {
				tc.before(t, dir)
			}
			p := contexts.Provider{Interval: never}
			if tc.file != "" {
				p.Kubeconfig = filepath.Join(dir, tc.file)
			}
			if tc.files != "" {
				p.Files = []string{filepath.Join(dir, tc.files)}
			}
			r := start(t, p)
			r.waitFor(tc.want...)
			for _, step := range tc.steps {
				step.change(t, dir)
				r.waitFor(step.want...)
			}
			wantNoneTwice(t, r.called(), tc.inPlace)
		})
	}
}

// wantNoneTwice fails the test if the same was reported of a member twice. If files were written in place, that it cannot
// be used may have come between.
func wantNoneTwice(t *testing.T, calls []string, inPlace bool) {
	t.Helper()
	reported := map[string]bool{}
	for _, call := range calls {
		if set, _, unusable := strings.Cut(call, " !"); inPlace && unusable {
			maps.DeleteFunc(reported, func(before string, _ bool) bool { return strings.HasPrefix(before, set+"@") })
			continue
		}
		if reported[call] && !strings.HasPrefix(call, "remove") {
			t.Errorf("%q was reported twice", call)
		}
		reported[call] = true
	}
}

// TestAFolderThatIsNeverQuietIsReadAllTheSame: somebody writes something there again and again.
func TestAFolderThatIsNeverQuietIsReadAllTheSame(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), with("a"))
	r := start(t, contexts.Provider{Files: []string{filepath.Join(dir, "*.yaml")}, Interval: never})
	r.waitFor("a@a")
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			<-tick.C
		}
	})
	defer writing.Wait()
	defer cancel()
	put(t, filepath.Join(dir, "b.yaml"), with("b"))
	r.waitFor("a@a", "b@b")
}

func TestLabelsAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	put(t, path, with("a"))
	labels := map[string]string{}
	r := start(t, contexts.Provider{Kubeconfig: path, Interval: time.Millisecond, Labels: func(c contexts.Context) map[string]string {
		if c != (contexts.Context{Name: "a", File: path}) {
			t.Errorf("labels are asked for %+v", c)
		}
		labels["asked"] += "x"
		return labels
	}})
	r.until(func() string {
		if len(r.now["a"].Labels["asked"]) < 3 {
			return "the labels have not changed twice"
		}
		return ""
	})
}

func TestAFileThatMovesStaysTheSameMember(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "b"), with("m"))
	r := start(t, contexts.Provider{Files: []string{dir}, Interval: never})
	r.waitFor("m@m")
	must(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
	put(t, filepath.Join(dir, "c"), with("other"))
	r.waitFor("m@m", "other@other")
	if got, want := fmt.Sprint(r.called()), "[set m@m set other@other]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWhatTheSystemDoesNotTellIsFoundLater: a folder far above the file is replaced, which nobody watches.
func TestWhatTheSystemDoesNotTellIsFoundLater(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "x/y/z/config"), with("a"))
	put(t, filepath.Join(dir, "new/y/z/config"), with("b"))
	r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "x/y/z/config"), Interval: 50 * time.Millisecond})
	r.waitFor("a@a")
	must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "old")))
	must(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "x")))
	r.waitFor("b@b")
}
