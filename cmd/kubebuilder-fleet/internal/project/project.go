// Package project moves a kubebuilder project to fleet-runtime, as docs/moving-from-controller-runtime.md describes it. It
// works on the files as kubebuilder's protocol for external plugins has them, and touches no disk.
package project

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Project is a kubebuilder project whose files may change. It is not safe for concurrent use.
type Project struct {
	files   map[string]string // as they came
	changed map[string]string // with \n at the ends of lines
	notes   []Note
	told    []string // reconcilers of which a note says why they stay in the hub
}

// Note is something that is left to a person.
type Note struct {
	File string
	Line int // 0 stands for the file as a whole
	Text string
}

func (n Note) String() string {
	if n.Line == 0 {
		return n.File + ": " + n.Text
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text)
}

// New returns the project that has these files, by their paths in it. It is an error if a path leads out of the project.
func New(files map[string]string) (*Project, error) {
	for name := range files {
		if !filepath.IsLocal(name) || strings.ContainsAny(name, "\x00\\") {
			return nil, fmt.Errorf("the file %q is not in the project", name)
		}
	}
	return &Project{files: files, changed: map[string]string{}}, nil
}

// Changed returns the files that are new or have changed, with the ends of lines that each had.
func (p *Project) Changed() map[string]string {
	out := map[string]string{}
	for name, text := range p.changed {
		before, existed := p.files[name]
		if existed && strings.Contains(before, "\r\n") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if !existed || text != before {
			out[name] = text
		}
	}
	return out
}

// Notes returns what is left to a person, by file and line.
func (p *Project) Notes() []Note {
	slices.SortStableFunc(p.notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(p.notes)
}

func (p *Project) notef(file string, line int, format string, args ...any) {
	p.notes = append(p.notes, Note{file, line, fmt.Sprintf(format, args...)})
}

// read returns a file as it is now, with \n at the ends of lines.
func (p *Project) read(name string) (text string, exists bool) {
	if text, ok := p.changed[name]; ok {
		return text, true
	}
	text, ok := p.files[name]
	return strings.ReplaceAll(text, "\r\n", "\n"), ok
}

func (p *Project) write(name, text string) { p.changed[name] = text }

// names returns the paths of all files that keep selects, in order.
func (p *Project) names(keep func(name string) bool) []string {
	all := maps.Clone(p.files)
	maps.Copy(all, p.changed)
	maps.DeleteFunc(all, func(name, _ string) bool { return !keep(name) })
	return slices.Sorted(maps.Keys(all))
}

// goFiles returns the paths of the project's own Go files that contain a word. Those of modules in its folders are others'.
func (p *Project) goFiles(word string) []string {
	others := []string{"vendor/", "bin/"}
	for name := range p.files {
		if folder, file := path.Split(name); file == "go.mod" && folder != "" {
			others = append(others, folder)
		}
	}
	return p.names(func(name string) bool {
		if path.Ext(name) != ".go" || slices.ContainsFunc(others, func(folder string) bool { return strings.HasPrefix(name, folder) }) {
			return false
		}
		text, _ := p.read(name)
		return strings.Contains(text, word)
	})
}

// Options say how a project is moved.
type Options struct {
	// Provider finds the members.
	Provider Provider
	// Namespace is that of the hub's objects that the provider reads.
	Namespace string
	// Version of fleet-runtime for go.mod. It may be empty if go.mod has one.
	Version string
	// Replace is the folder that go.mod takes fleet-runtime from. Default: none.
	Replace string
}

// Move moves the whole project. What was moved before stays as it is. After an error, nothing of Changed is to be used.
func (p *Project) Move(o Options) error {
	if err := p.understands(); err != nil {
		return err
	}
	moved, err := p.moveMain(o, "")
	if err != nil {
		return err
	}
	if err := p.requireFleetRuntime(o); err != nil {
		return err
	}
	if err := p.moveManifests(o, moved); err != nil {
		return err
	}
	p.moveMakefile()
	p.raiseGoOfDockerfile()
	if err := errors.Join(p.moveSuites(), p.moveWebhooks()); err != nil {
		return err
	}
	p.noteWhatIsLeft()
	p.noteControllers("")
	return nil
}

// AddAPI moves the controller that kubebuilder has just scaffolded for a kind.
func (p *Project) AddAPI(kind string) error {
	if err := p.mustBeMoved(); err != nil {
		return err
	}
	if _, err := p.moveMain(Options{}, kind); err != nil {
		return err
	}
	if err := p.addCRDs(); err != nil {
		return err
	}
	if err := errors.Join(p.moveSuites(), p.moveWebhooks()); err != nil {
		return err
	}
	p.noteControllers(kind + "Reconciler")
	return p.addFleetTest(kind)
}

// AddWebhook makes the webhook that kubebuilder has just scaffolded fit controller-runtime.
func (p *Project) AddWebhook() error { return errors.Join(p.mustBeMoved(), p.moveWebhooks()) }

const (
	mainFile   = "cmd/main.go"
	layout     = "go.kubebuilder.io/v4"
	howToMove  = "docs/moving-from-controller-runtime.md of fleet-runtime says how to do it by hand"
	pluginName = "fleet.fleet-runtime.dev/v1"
)

// understands is an error for a project that this package does not know how to move.
func (p *Project) understands() error {
	if text, ok := p.read("PROJECT"); ok && !strings.Contains(text, layout) { // there is none yet in kubebuilder init
		return fmt.Errorf("PROJECT: the layout is not %s, and no other is known; %s", layout, howToMove)
	}
	for _, name := range []string{mainFile, "go.mod"} {
		if _, ok := p.read(name); !ok {
			return fmt.Errorf("%s is missing, which kubebuilder scaffolds with the layout %s; %s", name, layout, howToMove)
		}
	}
	return nil
}

func (p *Project) mustBeMoved() error {
	if err := p.understands(); err != nil {
		return err
	}
	if text, _ := p.read(mainFile); !strings.Contains(text, mcmanagerPath) {
		return fmt.Errorf("%s: the manager is not one of fleet-runtime's; run kubebuilder edit --plugins %s first", mainFile, pluginName)
	}
	return nil
}
