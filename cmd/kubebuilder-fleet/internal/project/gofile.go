package project

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/fleet-runtime/fleet-runtime"

// Packages that are imported or looked for.
const (
	mcbuilderPath   = module + "/mcbuilder"
	mchandlerPath   = module + "/mchandler"
	mcmanagerPath   = module + "/mcmanager"
	mcreconcilePath = module + "/mcreconcile"
	mctestPath      = module + "/mctest"

	ctrlPath      = "sigs.k8s.io/controller-runtime"
	builderPath   = ctrlPath + "/pkg/builder"
	clientPath    = ctrlPath + "/pkg/client"
	clusterPath   = ctrlPath + "/pkg/cluster"
	envtestPath   = ctrlPath + "/pkg/envtest"
	handlerPath   = ctrlPath + "/pkg/handler"
	managerPath   = ctrlPath + "/pkg/manager"
	reconcilePath = ctrlPath + "/pkg/reconcile"
)

// goFile is a Go file that is changed by edits of its text, so that comments and whatever is not edited stay as they are.
type goFile struct {
	name   string
	text   string
	files  *token.FileSet
	syntax *ast.File
	edits  []edit
	add    []string // import paths
}

// edit puts text in the place of the bytes [from, to).
type edit struct {
	from, to int
	text     string
}

func parseGo(name, text string) (*goFile, error) {
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing Go: %w", err)
	}
	return &goFile{name: name, text: text, files: files, syntax: syntax}, nil
}

func (f *goFile) offset(pos token.Pos) int   { return f.files.Position(pos).Offset }
func (f *goFile) line(n ast.Node) int        { return f.files.Position(n.Pos()).Line }
func (f *goFile) source(n ast.Node) string   { return f.text[f.offset(n.Pos()):f.offset(n.End())] }
func (f *goFile) insert(at int, text string) { f.edits = append(f.edits, edit{at, at, text}) }

func (f *goFile) replace(n ast.Node, text string) { f.replaceRange(n.Pos(), n.End(), text) }
func (f *goFile) replaceRange(from, to token.Pos, text string) {
	f.edits = append(f.edits, edit{f.offset(from), f.offset(to), text})
}

// removeLines removes a node with the lines that it is on.
func (f *goFile) removeLines(from, to token.Pos) {
	start := strings.LastIndexByte(f.text[:f.offset(from)], '\n') + 1
	end := f.offset(to)
	if n := strings.IndexByte(f.text[end:], '\n'); n >= 0 {
		end += n + 1
	}
	f.edits = append(f.edits, edit{start, end, ""})
}

// imported returns the path of the package that an identifier stands for, "" if for none.
func (f *goFile) imported(name string) string {
	for _, spec := range f.syntax.Imports {
		if localName(spec) == name {
			return importPath(spec)
		}
	}
	return ""
}

// selects tells whether an expression is NAME of a package, as in ctrl.NewManager.
func (f *goFile) selects(e ast.Expr, pkg string, names ...string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, s.Sel.Name) {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && f.imported(x.Name) == pkg
}

// use imports a package, and returns the name that it has in this file.
func (f *goFile) use(pkg string) string {
	name := path.Base(pkg)
	for _, spec := range f.syntax.Imports {
		if importPath(spec) == pkg {
			return localName(spec)
		}
	}
	if f.declares(name) {
		name = "fleet" + name
		pkg = name + " " + pkg
	}
	if !slices.Contains(f.add, pkg) {
		f.add = append(f.add, pkg)
	}
	return name
}

// declares tells whether a name means something else than a package that this file will import.
func (f *goFile) declares(name string) bool {
	if f.imported(name) != "" {
		return true
	}
	found := false
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			ast.Inspect(n.X, func(x ast.Node) bool { id, ok := x.(*ast.Ident); found = found || ok && id.Name == name; return true })
			return false
		case *ast.Ident:
			found = found || n.Name == name
		}
		return !found
	})
	return found
}

// result returns the file with all edits, with the imports that it needs, and formatted.
func (f *goFile) result() (string, error) {
	if len(f.edits) == 0 && len(f.add) == 0 {
		return f.text, nil
	}
	before := f.used()
	for _, pkg := range f.add {
		f.addImport(pkg)
	}
	f.add = nil
	edited, err := parseGo(f.name, f.edited())
	if err != nil {
		return "", err
	}
	after := edited.used()
	for _, spec := range edited.syntax.Imports {
		if name := localName(spec); before[name] && !after[name] {
			edited.removeLines(spec.Pos(), spec.End())
		}
	}
	out, err := format.Source([]byte(edited.edited()))
	return string(out), err
}

func (f *goFile) edited() string {
	slices.SortStableFunc(f.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out strings.Builder
	at := 0
	for _, e := range f.edits {
		if e.from < at {
			continue // this is within what was replaced as a whole
		}
		out.WriteString(f.text[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.WriteString(f.text[at:])
	return out.String()
}

// used returns the names before a dot, among which are those of the packages that are used.
func (f *goFile) used() map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				names[x.Name] = true
			}
		}
		return true
	})
	return names
}

// addImport puts an import beside those that it has most in common with, else after the last one. The formatter sorts them.
func (f *goFile) addImport(pkg string) {
	line := strconv.Quote(pkg)
	if alias, rest, ok := strings.Cut(pkg, " "); ok {
		line, pkg = alias+" "+strconv.Quote(rest), rest
	}
	specs := f.syntax.Imports
	if len(specs) == 0 {
		f.insert(f.offset(f.syntax.Name.End()), "\n\nimport "+line+"\n")
		return
	}
	beside, most := specs[len(specs)-1], 1
	for _, spec := range specs {
		if n := common(pkg, importPath(spec)); n > most {
			beside, most = spec, n
		}
	}
	if standard := !strings.Contains(strings.Split(pkg, "/")[0], "."); standard && most == 1 {
		beside = specs[0]
	}
	if f.inParentheses(beside) {
		f.insert(f.endOfLine(beside), "\n\t"+line)
		return
	}
	f.insert(f.endOfLine(beside), "\nimport "+line)
}

func (f *goFile) endOfLine(n ast.Node) int {
	end := f.offset(n.End())
	if at := strings.IndexByte(f.text[end:], '\n'); at >= 0 {
		return end + at
	}
	return len(f.text)
}

func (f *goFile) inParentheses(spec *ast.ImportSpec) bool {
	for _, decl := range f.syntax.Decls {
		if decl, ok := decl.(*ast.GenDecl); ok && decl.Tok == token.IMPORT && decl.Lparen.IsValid() && decl.Pos() < spec.Pos() && spec.End() < decl.End() {
			return true
		}
	}
	return false
}

// common counts the first parts of two import paths that are the same.
func common(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	return n
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "" // the parser has checked it
	}
	return p
}

var versionSuffix = regexp.MustCompile(`/v[0-9]+$`)

// localName returns the name of an imported package in its file. Without another, that of its folder.
func localName(spec *ast.ImportSpec) string {
	switch {
	case spec.Name != nil:
		return spec.Name.Name
	case importPath(spec) == ctrlPath:
		return "controllerruntime"
	default:
		return path.Base(versionSuffix.ReplaceAllString(importPath(spec), ""))
	}
}
