package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

func TestOptionsSayWhichContextsAreMembers(t *testing.T) {
	dir := t.TempDir()
	path := func(names ...string) string {
		for i, name := range names {
			names[i] = filepath.Join(dir, name)
		}
		return strings.Join(names, string(os.PathListSeparator))
	}
	put(t, path("one"), with("a", "b"))
	put(t, path("two"), with("c"))
	put(t, path("three"), at("a", "third"))
	put(t, path("slashes"), with("aws:1/east", "aws:1/west", "aws:2/east"))
	put(t, path("folder/x.yaml"), with("x"))
	put(t, path("folder/y"), with("y"))
	put(t, path("folder/.hidden"), with("hidden"))
	put(t, path("folder/y~"), with("copy"))
	put(t, path("folder/y.lock"), with("lock"))
	put(t, path("folder/sub/z"), with("z"))
	put(t, path("spaces"), with("with spaces", "without"))
	put(t, path("odd[1]"), with("odd"))
	byFile := func(c contexts.Context) fleet.ClusterName {
		return fleet.ClusterName(strings.TrimSuffix(filepath.Base(c.File), ".yaml"))
	}

	for name, tc := range map[string]struct {
		provider contexts.Provider
		env      string // KUBECONFIG
		want     []string
		log      []string // parts of a line
	}{
		"the zero value has all of KUBECONFIG": {
			env: path("one", "two"), want: []string{"a@a", "b@b", "c@c"},
		},
		"of several files the first that has a name counts": {
			provider: contexts.Provider{Kubeconfig: path("three", "one")}, want: []string{"a@third", "b@b"},
		},
		"Kubeconfig counts instead of KUBECONFIG": {
			provider: contexts.Provider{Kubeconfig: path("two")}, env: path("one"), want: []string{"c@c"},
		},
		"Files count instead of KUBECONFIG": {
			provider: contexts.Provider{Files: []string{path("two")}}, env: path("one"), want: []string{"c@c"},
		},
		"Files count beside Kubeconfig": {
			provider: contexts.Provider{Kubeconfig: path("one"), Files: []string{path("two")}},
			want:     []string{"a@a", "b@b", "c@c"},
		},
		"files may be missing": {
			provider: contexts.Provider{Kubeconfig: path("nowhere", "one"), Files: []string{path("none"), path("no*")}},
			want:     []string{"a@a", "b@b"}, log: []string{path("none")},
		},
		"it is said when there is no kubeconfig at all": {
			env: path("nowhere", "none"), log: []string{path("nowhere"), path("none"), "no such file"},
		},
		"a folder has the files in it": {
			provider: contexts.Provider{Files: []string{path("folder")}}, want: []string{"x@x", "y@y"},
		},
		"a pattern has the files that match": {
			provider: contexts.Provider{Files: []string{path("f*/[xz]*"), path("*/*/z")}}, want: []string{"x@x", "z@z"},
		},
		"a path that looks like a pattern is a path": {
			provider: contexts.Provider{Files: []string{path("odd[1]")}}, want: []string{"odd@odd"},
		},
		"contexts by name": {
			provider: contexts.Provider{Kubeconfig: path("one", "two"), Contexts: []string{"a", "c"}},
			want:     []string{"a@a", "c@c"},
		},
		"contexts by pattern, with slashes": {
			provider: contexts.Provider{Kubeconfig: path("one", "slashes"), Contexts: []string{"*1/w*", "*east"}},
			want:     []string{"aws:1/east@aws:1/east", "aws:1/west@aws:1/west", "aws:2/east@aws:2/east"},
		},
		"a context that is asked for and missing is a member that says so": {
			provider: contexts.Provider{Kubeconfig: path("one"), Contexts: []string{"a", "z", "z*"}},
			want:     []string{"a@a", "z !NoContext"},
		},
		"a name that is taken is left out": {
			provider: contexts.Provider{Files: []string{path("three"), path("one")}},
			want:     []string{"a@third", "b@b"},
			log:      []string{`context \"a\" of ` + path("one"), `the name \"a\" is that of context \"a\" of ` + path("three"), `"reason"="DuplicateName"`},
		},
		"a file counts once": {
			provider: contexts.Provider{Kubeconfig: path("one"), Files: []string{path("o*"), path("one")}},
			want:     []string{"a@a", "b@b", "odd@odd"},
		},
		"names by file": {
			provider: contexts.Provider{Files: []string{path("one"), path("three"), path("folder")}, Contexts: []string{"a", "x"}, Name: byFile},
			want:     []string{"one@a", "three@third", "x@x"},
		},
		"a name that cannot be used is left out": {
			provider: contexts.Provider{Files: []string{path("spaces")}},
			want:     []string{"without@without"}, log: []string{`context \"with spaces\" of`, "spaces"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			r := start(t, tc.provider)
			r.waitFor(tc.want...)
			if tc.log != nil {
				r.waitForLog(tc.log...)
			} else if lines := r.logged(); len(lines) > 0 {
				t.Errorf("the log has %q", lines)
			}
		})
	}
}
