package project

import (
	"go/ast"
	"path"
	"strings"

	"golang.org/x/mod/modfile"
	"sigs.k8s.io/kubebuilder/v4/pkg/machinery"
)

// forKind is the method of builders that takes a kind.
const forKind = "For"

// addFleetTest adds a test that runs the controller of a kind in a fleet, if the kind is one of the project's own.
func (p *Project) addFleetTest(kind string) error {
	for _, name := range p.goFiles("func Setup" + kind + "WithManager(") {
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil {
			return err
		}
		values := Values{Package: f.syntax.Name.Name, Kind: kind}
		values.Alias, values.API = f.kindOf("Setup" + kind + "WithManager")
		test := strings.TrimSuffix(name, "_controller.go") + "_fleet_test.go"
		suite, hasSuite := p.read(path.Dir(name) + "/suite_test.go")
		if !p.owns(values.API) || !hasSuite || !strings.Contains(suite, mctestPath) {
			continue
		}
		values.Namespaced = p.namespaced(values.API, kind)
		if err := p.scaffold(machinery.Builder(template(test, "fleet_test.go.tmpl", values))); err != nil {
			return err
		}
	}
	return nil
}

func (p *Project) owns(pkg string) bool {
	text, _ := p.read("go.mod")
	return strings.HasPrefix(pkg, modfile.ModulePath([]byte(text))+"/")
}

// kindOf returns the package of the kind in For(&webappv1.Guestbook{}), in the function of a name.
func (f *goFile) kindOf(function string) (alias, pkg string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if fun, ok := n.(*ast.FuncDecl); ok {
			return fun.Name.Name == function
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || fun.Sel.Name != forKind {
			return true
		}
		if literal := literalOf(call.Args[0]); literal != nil {
			if t, ok := literal.Type.(*ast.SelectorExpr); ok {
				alias = f.source(t.X)
				pkg = f.imported(alias)
			}
		}
		return true
	})
	return alias, pkg
}

// namespaced tells whether the kind's marker leaves it in namespaces.
func (p *Project) namespaced(api, kind string) bool {
	folder, _ := p.folder(api)
	text, _ := p.read(folder + "/" + strings.ToLower(kind) + "_types.go")
	return !strings.Contains(text, "+kubebuilder:resource:scope=Cluster")
}
