package project

import (
	"fmt"
	"go/ast"
)

// moveWebhooks makes webhooks fit controller-runtime, whose builder of webhooks takes the kind's type since v0.23.
// Plugins of kubebuilder before v4.11 scaffold for older ones. The webhooks go on serving the hub.
func (p *Project) moveWebhooks() error {
	for _, name := range p.goFiles("NewWebhookManagedBy") {
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil {
			return fmt.Errorf("%w; %s", err, howToMove)
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				f.moveWebhook(call)
			}
			return true
		})
		result, err := f.result()
		if err != nil {
			return err
		}
		p.write(name, result)
	}
	return nil
}

// moveWebhook moves a call ctrl.NewWebhookManagedBy(mgr).For(&v1.Guestbook{}), and what follows it in a chain.
func (f *goFile) moveWebhook(call *ast.CallExpr) {
	names := map[string]string{"WithDefaulter": "WithCustomDefaulter", "WithValidator": "WithCustomValidator"}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	made, isFor := f.oldWebhook(fun.X)
	switch {
	case made == nil:
	case fun.Sel.Name == forKind && !isFor && len(call.Args) == 1:
		f.insert(f.offset(made.Rparen), ", "+f.source(call.Args[0]))
		f.replaceRange(fun.X.End(), call.End(), "")
	case isFor && names[fun.Sel.Name] != "":
		f.replace(fun.Sel, names[fun.Sel.Name])
	}
}

// oldWebhook finds the call ctrl.NewWebhookManagedBy(mgr) at the root of a chain, and tells whether For is called in the chain.
func (f *goFile) oldWebhook(e ast.Expr) (made *ast.CallExpr, isFor bool) {
	for {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return nil, false
		}
		if f.selects(call.Fun, ctrlPath, "NewWebhookManagedBy") && len(call.Args) == 1 {
			return call, isFor
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return nil, false
		}
		isFor = isFor || fun.Sel.Name == forKind
		e = fun.X
	}
}
