package project

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// noteWhatIsLeft notes what compiles as it is, and may not do what is meant.
func (p *Project) noteWhatIsLeft() {
	p.noteMain()
	if _, ok := p.read("vendor/modules.txt"); ok {
		p.notef("vendor/modules.txt", 0, "run go mod vendor after go mod tidy")
	}
	for _, name := range p.goFiles("controllerutil.AddFinalizer") {
		p.noteWord(name, "controllerutil.AddFinalizer", "the finalizer stays in members that are removed, unless the reconciler asks mcreconcile.Leaving")
	}
	for _, name := range ofMembers {
		if text, ok := p.read("config/rbac/" + name); ok && strings.HasPrefix(text, strings.Split(movedComment, "%s")[0]) {
			p.notef("config/rbac/"+name, 0, "delete it; it is in config/member now")
		}
	}
	if text, ok := p.read("PROJECT"); ok && !strings.Contains(text, pluginName) {
		p.noteWord("PROJECT", layout, "add - "+pluginName+" below this line, so that kubebuilder create api scaffolds controllers of the fleet")
	}
}

// hubAlone is what becomes of a controller that is not moved.
const hubAlone = "runs in the hub alone until it is moved"

// noteControllers notes controllers of the hub of which nothing was said yet: those that main.go sets up in another way than
// kubebuilder scaffolds it. They are all, or those of one reconciler.
func (p *Project) noteControllers(reconciler string) {
	for _, name := range p.goFiles("ControllerManagedBy") {
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, decl := range f.syntax.Decls {
			fun, ok := decl.(*ast.FuncDecl)
			if !ok || slices.Contains(p.told, receiverType(fun)) || reconciler != "" && receiverType(fun) != reconciler {
				continue
			}
			ast.Inspect(fun, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && f.buildsForHub(call) {
					p.notef(name, f.line(call), "the controller that is built here %s", hubAlone)
				}
				return true
			})
		}
	}
}

// buildsForHub tells whether a call is that of controller-runtime's builder.
func (f *goFile) buildsForHub(call *ast.CallExpr) bool {
	return f.selects(call.Fun, ctrlPath, "NewControllerManagedBy") || f.selects(call.Fun, builderPath, "ControllerManagedBy")
}

// manager returns the name of the variable that has fleet-runtime's manager.
func (f *goFile) manager() (name string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Rhs) == 1 {
			if call, ok := assign.Rhs[0].(*ast.CallExpr); ok && f.selects(call.Fun, mcmanagerPath, "New") {
				name = f.source(assign.Lhs[0])
			}
		}
		return true
	})
	return name
}

// noteMain notes what main.go goes on doing in the hub.
func (p *Project) noteMain() {
	text, _ := p.read(mainFile)
	f, err := parseGo(mainFile, text)
	if err != nil {
		return // it has been parsed and formatted before
	}
	manager := f.manager()
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, _ := fun.X.(*ast.Ident)
		switch name := fun.Sel.Name; {
		case strings.HasSuffix(name, "WebhookWithManager"):
			p.notef(mainFile, f.line(call), "webhooks serve the hub, and not the members")
		case x == nil || x.Name != manager:
		case name == "GetFieldIndexer":
			p.notef(mainFile, f.line(call), "this indexes the hub; GetFleetFieldIndexer indexes the members")
		case name == "GetClient" || strings.HasPrefix(name, "GetEventRecorder"):
			p.notef(mainFile, f.line(call), "%s is that of the hub", name)
		}
		return true
	})
}

// noteWord notes something about each line that has a word.
func (p *Project) noteWord(name, word, text string) {
	if strings.HasSuffix(path.Base(name), "_test.go") {
		return
	}
	content, _ := p.read(name)
	line := 0
	for l := range strings.Lines(content) {
		line++
		if strings.Contains(l, word) {
			p.notef(name, line, "%s", text)
		}
	}
}
