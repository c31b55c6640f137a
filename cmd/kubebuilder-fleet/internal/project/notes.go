package project

import (
	"go/ast"
	"path"
	"strings"
)

// noteWhatIsLeft notes what compiles as it is, and may not do what is meant.
func (p *Project) noteWhatIsLeft() {
	p.noteMain()
	for _, name := range p.goFiles("controllerutil.AddFinalizer") {
		p.noteWord(name, "controllerutil.AddFinalizer", "the finalizer stays in members that are removed, unless the reconciler asks mcreconcile.Leaving")
	}
	for _, name := range ofMembers {
		if text, ok := p.read("config/rbac/" + name); ok && strings.HasPrefix(text, strings.Split(movedComment, "%s")[0]) {
			p.notef("config/rbac/"+name, 0, "delete it; it is in config/members now")
		}
	}
	if text, ok := p.read("PROJECT"); ok && !strings.Contains(text, pluginName) {
		p.noteWord("PROJECT", layout, "add - "+pluginName+" below this line, so that kubebuilder create api scaffolds controllers of the fleet")
	}
}

// noteMain notes what main.go goes on doing in the hub.
func (p *Project) noteMain() {
	text, _ := p.read(mainFile)
	f, err := parseGo(mainFile, text)
	if err != nil {
		return // it has been parsed and formatted before
	}
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
		case x == nil || x.Name != "mgr":
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
