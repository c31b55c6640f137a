package project

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// registration is the call in main.go that sets up a controller.
type registration struct {
	call       *ast.CallExpr
	literal    *ast.CompositeLit // of the reconciler
	pkg        string            // the import path of its package
	reconciler string            // the name of its type
	manager    string            // the name of the manager's variable
}

// controllerName is what the names of its functions are made of.
func (r registration) controllerName() string { return strings.TrimSuffix(r.reconciler, "Reconciler") }

// moveMain moves the manager, and the controllers: all, or that of one kind. It reports whether the manager is moved now.
func (p *Project) moveMain(o Options, kind string) (moved bool, err error) {
	text, _ := p.read(mainFile)
	f, err := parseGo(mainFile, text)
	if err != nil {
		return false, fmt.Errorf("%w; %s", err, howToMove)
	}
	if !strings.Contains(text, mcmanagerPath) {
		if err := moveManager(f, o); err != nil {
			return false, err
		}
		moved = true
	}
	for _, r := range f.registrations() {
		if kind != "" && r.reconciler != kind+"Reconciler" {
			continue
		}
		problem, err := p.moveController(f, r)
		switch {
		case err != nil:
			return false, err
		case problem != nil:
			p.notef(problem.File, problem.Line, "%s; %s %s", problem.Text, r.reconciler, hubAlone)
			p.told = append(p.told, r.reconciler)
		default:
			f.replaceRegistration(r)
		}
	}
	result, err := f.result()
	if err != nil {
		return false, err
	}
	p.write(mainFile, result)
	return moved, nil
}

// replaceRegistration calls the function that the controller has now. kubebuilder create api --force registers it once more: then
// that registration is removed.
func (f *goFile) replaceRegistration(r registration) {
	call := fmt.Sprintf("%s.Setup%sWithManager(%s)", f.nameOf(r.pkg), r.controllerName(), r.manager)
	again := false
	var statement ast.Stmt // the innermost one of a block that has the registration
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if other, ok := n.(*ast.CallExpr); ok {
			again = again || f.source(other) == call
		}
		if block, ok := n.(*ast.BlockStmt); ok {
			for _, s := range block.List {
				if s.Pos() <= r.call.Pos() && r.call.End() <= s.End() {
					statement = s
				}
			}
		}
		return true
	})
	if again {
		f.removeLines(statement.Pos(), statement.End())
		return
	}
	f.replace(r.call, call)
}

func (f *goFile) nameOf(pkg string) string {
	i := slices.IndexFunc(f.syntax.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == pkg })
	return localName(f.syntax.Imports[i])
}

// moveManager makes the manager one of a fleet.
func moveManager(f *goFile, o Options) error {
	var calls []*ast.CallExpr
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE || len(assign.Rhs) != 1 {
			return true
		}
		call, ok := assign.Rhs[0].(*ast.CallExpr)
		if ok && len(call.Args) == 2 && (f.selects(call.Fun, ctrlPath, "NewManager") || f.selects(call.Fun, managerPath, "New")) {
			calls = append(calls, call)
		}
		return true
	})
	if len(calls) != 1 {
		return fmt.Errorf("%s: a line `mgr, err := ctrl.NewManager(config, options)` is expected once, and is there %d times; %s",
			f.name, len(calls), howToMove)
	}
	provider := f.use(o.Provider.pkg)
	f.replace(calls[0].Fun, f.use(mcmanagerPath)+".New")
	f.insert(f.offset(calls[0].Args[1].Pos()), o.Provider.literal(provider, o.Namespace)+", ")
	for _, pkg := range o.Provider.imports {
		f.use(pkg)
	}
	return nil
}

// registrations returns the calls (&controller.GuestbookReconciler{…}).SetupWithManager(mgr).
func (f *goFile) registrations() (found []registration) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || fun.Sel.Name != "SetupWithManager" {
			return true
		}
		manager, isName := call.Args[0].(*ast.Ident)
		literal := literalOf(fun.X)
		if !isName || literal == nil {
			return true
		}
		if t, ok := literal.Type.(*ast.SelectorExpr); ok {
			if x, ok := t.X.(*ast.Ident); ok && f.imported(x.Name) != "" {
				found = append(found, registration{call, literal, f.imported(x.Name), t.Sel.Name, manager.Name})
			}
		}
		return true
	})
	return found
}

// literalOf returns the literal of (&T{…}), nil if it is something else.
func literalOf(e ast.Expr) *ast.CompositeLit {
	if unary, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && unary.Op == token.AND {
		literal, _ := unary.X.(*ast.CompositeLit)
		return literal
	}
	return nil
}

// folder returns the folder of one of the project's own packages.
func (p *Project) folder(pkg string) (folder string, own bool) {
	text, _ := p.read("go.mod")
	rest, own := strings.CutPrefix(pkg, modfile.ModulePath([]byte(text))+"/")
	return path.Clean(rest), own
}
