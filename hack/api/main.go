// Command api writes down what each package of the library exports, a line for each name, so that no change of it is an
// accident. It is run in the root of the repository, by make generate.
package main

//go:generate go run -C ../.. ./hack/api

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "github.com/fleet-runtime/fleet-runtime/"
	folder = "docs/api"
)

// modules are the folders of the modules that users import.
func modules() []string { return []string{".", "providers/upstream", "telemetry"} }

func main() {
	log.SetFlags(0)
	if err := os.RemoveAll(folder); err != nil {
		log.Fatal(err)
	}
	for _, dir := range modules() {
		if err := write(dir); err != nil {
			log.Fatalf("api: module %s: %v", dir, err)
		}
	}
}

// listed is a package as go list knows it.
type listed struct {
	ImportPath, Name, Export string
	DepOnly                  bool
}

// write writes the files of one module's packages.
func write(dir string) error {
	packages, err := list(dir)
	if err != nil {
		return err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range packages {
		if p.DepOnly || !isPublic(p) {
			continue
		}
		loaded, err := from.Import(p.ImportPath)
		if err != nil {
			return err
		}
		file := filepath.Join(folder, strings.TrimPrefix(p.ImportPath, module)+".txt")
		if err := writeLines(file, lines(loaded)); err != nil {
			return err
		}
	}
	return nil
}

func list(dir string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-C", dir, "-export", "-deps", "-json=ImportPath,Name,Export,DepOnly", "./...") //nolint:gosec,noctx // the folders are constants
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var packages []listed
	for documents := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := documents.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

func isPublic(p listed) bool {
	path := strings.TrimPrefix(p.ImportPath, module)
	first, _, _ := strings.Cut(path, "/")
	return p.Name != "main" && !slices.Contains(strings.Split(path, "/"), "internal") &&
		!slices.Contains([]string{"docs", "examples", "hack", "test"}, first)
}

// lines returns a line for each exported name, each field and each method. Neither depends on where in the source they are.
func lines(p *types.Package) []string {
	qualifier := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module)
	}
	var all []string
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch o := object.(type) {
		case *types.TypeName:
			all = append(all, linesOfType(o, qualifier)...)
		case *types.Const:
			all = append(all, fmt.Sprintf("%s = %s", types.ObjectString(o, qualifier), o.Val().ExactString()))
		default:
			all = append(all, types.ObjectString(o, qualifier))
		}
	}
	return all
}

func linesOfType(o *types.TypeName, qualifier types.Qualifier) []string {
	text := func(t types.Type) string { return types.TypeString(t, qualifier) }
	if o.IsAlias() {
		return []string{types.ObjectString(o, qualifier)}
	}
	named, _ := o.Type().(*types.Named)
	head := "type " + text(named)
	var all []string
	switch under := named.Underlying().(type) {
	case *types.Struct:
		all = append(all, head+" struct")
		for field := range under.Fields() {
			if field.Exported() {
				all = append(all, fmt.Sprintf("%s.%s %s", head, field.Name(), text(field.Type())))
			}
		}
	case *types.Interface:
		all = append(all, head+" interface")
		for method := range under.Methods() {
			all = append(all, fmt.Sprintf("%s.%s%s", head, method.Name(), strings.TrimPrefix(text(method.Type()), "func")))
		}
	default:
		all = append(all, head+" "+text(under))
	}
	var methods []string
	for method := range named.Methods() {
		if method.Exported() {
			methods = append(methods, types.ObjectString(method, qualifier))
		}
	}
	slices.Sort(methods)
	return append(all, methods...)
}

func writeLines(path string, all []string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(all, "\n")+"\n"), 0o600)
}
