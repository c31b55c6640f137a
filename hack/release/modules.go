package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// of is the module in the repository's root.
const of = "github.com/fleet-runtime/fleet-runtime"

// goModule is one of those modules of the repository that users get.
type goModule struct {
	folder string // "." is the root
	path   string
	takes  []string // the paths of those of the repository that it depends on, which it takes from the checkout
}

// tag is the name of a version of it in git.
func (m goModule) tag(version string) string { return path.Join(m.folder, version) }

// edits are the arguments of go mod edit that let it take the others of the repository from where users do.
func (m goModule) edits(version string) (all []string) {
	for _, other := range m.takes {
		all = append(all, "-dropreplace="+other, "-require="+other+"@"+version)
	}
	return all
}

// modules returns those that users get, each after those that it takes, and the one in the root first. What builds and tests the project, and its examples, is none.
func modules(ctx context.Context, root string) (all []goModule, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "go.mod", "*/go.mod").Output() //nolint:gosec // the caller's own folder
	if err != nil {
		return nil, fmt.Errorf("ask git for the modules: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		folder := path.Dir(name)
		parts := strings.Split(folder, "/")
		if slices.Contains([]string{"examples", "hack", "test"}, parts[0]) || slices.Contains(parts, "testdata") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // of the repository
		if err != nil {
			return nil, err
		}
		mod, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		m := goModule{folder: folder, path: mod.Module.Mod.Path}
		for _, r := range mod.Require {
			if r.Mod.Path == of || strings.HasPrefix(r.Mod.Path, of+"/") {
				m.takes = append(m.takes, r.Mod.Path)
			}
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b goModule) int { // one takes more than those that it takes
		return cmp.Or(cmp.Compare(len(a.takes), len(b.takes)), strings.Compare(a.folder, b.folder))
	})
	return all, nil
}

// sayHowToPublish says which tags make a release of a commit: one for each module.
func sayHowToPublish(ctx context.Context, out io.Writer, root, version string) error {
	all, err := modules(ctx, root)
	if err != nil {
		return err
	}
	var first, then []string
	for _, m := range all {
		if len(m.takes) == 0 {
			first = append(first, fmt.Sprintf("  git tag %s\n", m.tag(version)))
			continue
		}
		then = append(then, fmt.Sprintf("  go -C %[1]s mod edit %[2]s && go -C %[1]s mod tidy\n  git commit -am %[3]s && git tag %[3]s\n",
			m.folder, strings.Join(m.edits(version), " "), m.tag(version)))
	}
	text := "Nothing is published. First tag this commit, and push the tags:\n" + strings.Join(first, "")
	if len(then) > 0 {
		text += "Then those modules that take " + of + " from this checkout, on a branch of its own, since go ignores what dependencies replace:\n" +
			strings.Join(then, "")
	}
	_, err = io.WriteString(out, text)
	return err
}
