package project

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kubebuilder/v4/pkg/model/resource"
)

const setupMethod = "SetupWithManager"

// ofCluster are the methods of a manager that a cluster.Cluster has too.
var ofCluster = []string{
	"GetClient", "GetScheme", "GetEventRecorder", "GetEventRecorderFor", "GetCache", "GetAPIReader", "GetRESTMapper", "GetConfig", "GetHTTPClient",
}

// controllerMove is the move of one controller. The first problem that it meets ends it, and nothing is changed then.
type controllerMove struct {
	file     *goFile
	main     *goFile
	reg      registration
	setup    *ast.FuncDecl
	receiver string
	manager  string
	methods  map[string]*ast.FuncDecl // of the reconciler
	seen     map[*ast.Ident]bool      // uses of the receiver and of the manager that were moved
	notes    []Note
	problem  *Note
}

// moveController moves a controller, or says what keeps it from being moved.
func (p *Project) moveController(main *goFile, reg registration) (problem *Note, err error) {
	folder, own := p.folder(reg.pkg)
	if !own {
		return &Note{mainFile, main.line(reg.call), "the controller is of another module"}, nil
	}
	m, problem, err := p.findSetup(main, reg, folder)
	if m == nil || problem != nil {
		return problem, err
	}
	m.move()
	if m.problem != nil {
		return m.problem, nil
	}
	text, err := m.file.result()
	if err != nil {
		return nil, err
	}
	p.write(m.file.name, text)
	p.notes = append(p.notes, m.notes...)
	return nil, nil
}

// findSetup finds the method SetupWithManager of a reconciler.
func (p *Project) findSetup(main *goFile, reg registration, folder string) (m *controllerMove, problem *Note, err error) {
	m = &controllerMove{main: main, reg: reg, methods: map[string]*ast.FuncDecl{}, seen: map[*ast.Ident]bool{}}
	taken := []string{"new" + reg.reconciler, "Setup" + reg.controllerName() + "WithManager"}
	for _, name := range p.goFiles("") {
		if path.Dir(name) != folder {
			continue
		}
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil {
			return nil, nil, fmt.Errorf("%w; %s", err, howToMove)
		}
		for _, decl := range f.syntax.Decls {
			fun, ok := decl.(*ast.FuncDecl)
			switch {
			case !ok:
			case fun.Recv == nil && slices.Contains(taken, fun.Name.Name):
				return nil, &Note{name, f.line(fun), "there is a function " + fun.Name.Name + " already"}, nil
			case receiverType(fun) != reg.reconciler:
			case fun.Name.Name == setupMethod:
				m.file, m.setup = f, fun
			default:
				m.methods[fun.Name.Name] = fun
			}
		}
	}
	if m.setup == nil {
		return nil, &Note{mainFile, main.line(reg.call), "no method " + setupMethod + " is found in " + folder}, nil
	}
	return m, p.calledElsewhere(reg.reconciler), nil
}

// calledElsewhere finds a call of the method outside of main.go, which would not compile any more.
func (p *Project) calledElsewhere(reconciler string) (problem *Note) {
	for _, name := range p.goFiles(setupMethod) {
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil || name == mainFile {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == setupMethod && strings.Contains(f.source(s.X), reconciler+"{") {
				problem = &Note{name, f.line(s), setupMethod + " is called here too"}
			}
			return problem == nil
		})
	}
	return problem
}

func receiverType(fun *ast.FuncDecl) string {
	if fun.Recv == nil || len(fun.Recv.List) != 1 {
		return ""
	}
	t := fun.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// failf says what a person has to move by hand, in the controller's file or in main.go.
func (m *controllerMove) failf(f *goFile, n ast.Node, format string, args ...any) {
	if m.problem == nil {
		m.problem = &Note{f.name, f.line(n), fmt.Sprintf(format, args...)}
	}
}

func (m *controllerMove) move() {
	params := m.setup.Type.Params.List
	if len(params) != 1 || len(params[0].Names) != 1 ||
		!m.file.selects(params[0].Type, ctrlPath, "Manager") && !m.file.selects(params[0].Type, managerPath, "Manager") {
		m.failf(m.file, m.setup, "%s takes something else than a manager", setupMethod)
		return
	}
	m.manager = params[0].Names[0].Name
	if names := m.setup.Recv.List[0].Names; len(names) == 1 {
		m.receiver = names[0].Name
	}
	m.signature()
	ast.Inspect(m.setup.Body, m.visit)
	m.leftovers()
}

// signature makes the method a function, and puts the function that makes reconcilers before it.
func (m *controllerMove) signature() {
	name := m.reg.controllerName()
	at := m.setup.Pos()
	if doc := m.setup.Doc; doc != nil {
		at = doc.Pos()
		first := doc.List[0]
		m.file.replace(first, strings.Replace(first.Text, " "+setupMethod, " Setup"+name+"WithManager", 1))
	}
	cl := m.file.use(clusterPath)
	m.file.insert(m.file.offset(at), fmt.Sprintf(
		"// new%[1]s returns the reconciler for the %[2]s of one cluster.\nfunc new%[1]s(cl %[3]s.Cluster) *%[1]s {\n\treturn &%[1]s{%[4]s}\n}\n\n",
		m.reg.reconciler, resource.RegularPlural(name), cl, strings.Join(m.fields(), ", ")))
	m.file.replaceRange(m.setup.Type.Func, m.setup.Body.Pos(),
		fmt.Sprintf("func Setup%sWithManager(%s %s.Manager) error ", name, m.manager, m.file.use(mcmanagerPath)))
}

// fields returns the fields of the reconciler as main.go has them, with a cluster in the place of the manager.
func (m *controllerMove) fields() (fields []string) {
	for _, e := range m.reg.literal.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			m.failf(m.main, e, "the reconciler's fields have no names here")
			return nil
		}
		fields = append(fields, m.main.source(kv.Key)+": "+m.value(kv.Value))
	}
	return fields
}

// value returns an expression of main.go as it is said in the controller's file.
func (m *controllerMove) value(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.Ident:
		if slices.Contains([]string{"true", "false", "nil"}, e.Name) {
			return e.Name
		}
	case *ast.CallExpr:
		args := make([]string, len(e.Args))
		for i, arg := range e.Args {
			args[i] = m.value(arg)
		}
		return m.value(e.Fun) + "(" + strings.Join(args, ", ") + ")"
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		switch {
		case !ok:
			return m.value(e.X) + "." + e.Sel.Name
		case x.Name == m.reg.manager && slices.Contains(ofCluster, e.Sel.Name):
			return "cl." + e.Sel.Name
		case x.Name != m.reg.manager && m.main.imported(x.Name) != "" && m.file.imported(x.Name) == m.main.imported(x.Name):
			return m.main.source(e)
		}
	}
	m.failf(m.main, e, "new%s cannot make `%s` of a cluster", m.reg.reconciler, m.main.source(e))
	return ""
}

// visit moves what the method calls.
func (m *controllerMove) visit(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return m.builderOption(n)
	}
	f := m.file
	switch {
	case f.buildsForHub(call):
		f.replace(call.Fun, f.use(mcbuilderPath)+".ControllerManagedBy")
		moved(m, call.Args...)
	case f.selects(call.Fun, handlerPath, "EnqueueRequestsFromMapFunc") && len(call.Args) == 1:
		f.replace(call.Fun, f.use(mchandlerPath)+".EnqueueRequestsFromMapFunc")
		m.mapFunc(call.Args[0])
	case f.selects(call.Fun, handlerPath, "EnqueueRequestForOwner") && len(call.Args) > 2:
		f.replace(call.Fun, f.use(mchandlerPath)+".EnqueueRequestForOwner")
		f.replaceRange(call.Args[0].Pos(), call.Args[2].Pos(), "")
		moved(m, call.Args[:2]...)
	default:
		m.method(call)
	}
	return m.problem == nil
}

// method moves a call of a method, of the builder or of the manager.
func (m *controllerMove) method(call *ast.CallExpr) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	x, _ := fun.X.(*ast.Ident)
	switch name := fun.Sel.Name; {
	case x != nil && x.Name == m.manager && name == "GetFieldIndexer":
		m.file.replace(fun.Sel, "GetFleetFieldIndexer")
		m.seen[x] = true
	case name == "WithOptions":
		m.file.replace(fun.Sel, "WithControllerOptions")
	case name == "WatchesRawSource":
		m.failf(m.file, fun.Sel, "a source becomes one of package mcsource by hand")
	case (name == "Complete" || name == "Build") && len(call.Args) == 1:
		m.complete(call.Args[0])
	}
}

// complete makes one reconciler for each cluster.
func (m *controllerMove) complete(arg ast.Expr) {
	f, made := m.file, "new"+m.reg.reconciler+"(cl)"
	if call, ok := arg.(*ast.CallExpr); ok && f.selects(call.Fun, reconcilePath, "AsReconciler") && len(call.Args) == 2 && m.isReceiver(call.Args[1]) {
		moved(m, call.Args...)
		made = f.source(call.Fun) + "(cl.GetClient(), " + made + ")"
	} else if !m.isReceiver(arg) {
		m.failf(m.file, arg, "`%s` is not the reconciler itself", f.source(arg))
		return
	}
	moved(m, arg)
	f.replace(arg, fmt.Sprintf("%s.PerCluster(func(cl %s.Cluster) %s.Reconciler { return %s })",
		f.use(mcreconcilePath), f.use(clusterPath), f.use(reconcilePath), made))
}

func (m *controllerMove) isReceiver(e ast.Expr) bool {
	x, ok := e.(*ast.Ident)
	return ok && x.Name == m.receiver
}

// mapFunc gives a map function the reconciler of the event's cluster.
func (m *controllerMove) mapFunc(arg ast.Expr) {
	f := m.file
	made := fmt.Sprintf("new%s(%%s.ClusterFrom(%%s))", m.reg.reconciler)
	switch arg := arg.(type) {
	case *ast.SelectorExpr:
		if !m.isReceiver(arg.X) {
			break
		}
		method := m.methods[arg.Sel.Name]
		if method == nil {
			break
		}
		moved(m, arg)
		ctx, obj := paramNames(method)
		f.replace(arg, fmt.Sprintf("func(%[1]s %[2]s.Context, %[3]s %[4]s.Object) []%[5]s.Request {\n\t\t\treturn %[6]s.%[7]s(%[1]s, %[3]s)\n\t\t}",
			ctx, f.use("context"), obj, f.use(clientPath), f.use(reconcilePath), fmt.Sprintf(made, f.use(mcreconcilePath), ctx), arg.Sel.Name))
		return
	case *ast.FuncLit:
		if m.mentions(arg.Body, m.receiver) {
			ctx := m.contextOf(arg)
			ast.Inspect(arg.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == m.receiver {
					m.seen[id] = true
				}
				return true
			})
			start := f.offset(arg.Body.Lbrace) + 1
			f.insert(start, fmt.Sprintf("\n\t\t\t%s := %s", m.receiver, fmt.Sprintf(made, f.use(mcreconcilePath), ctx)))
			if f.text[start] != '\n' {
				f.insert(start, "\n")
			}
		}
		return
	case *ast.Ident:
		m.notes = append(m.notes, Note{f.name, f.line(arg), fmt.Sprintf(
			"a client in the map function %s must be that of mcreconcile.ClusterFrom(ctx)", arg.Name)})
		return
	}
	m.failf(m.file, arg, "the map function `%s` is neither a method nor a function that is written here", f.source(arg))
}

// contextOf returns the name of a map function's context, which it gets if it has none.
func (m *controllerMove) contextOf(fun *ast.FuncLit) string {
	params := fun.Type.Params.List
	if len(params) == 0 || len(params[0].Names) == 0 {
		m.failf(m.file, fun, "the map function does not name its context")
		return ""
	}
	if name := params[0].Names[0]; name.Name != "_" {
		return name.Name
	}
	m.file.replace(params[0].Names[0], "ctx")
	return "ctx"
}

// paramNames returns the names of a map function's parameters, or those that are usual.
func paramNames(fun *ast.FuncDecl) (ctx, obj string) {
	names := []string{"ctx", "obj"}
	i := 0
	for _, field := range fun.Type.Params.List {
		for _, name := range field.Names {
			if i < len(names) && name.Name != "_" {
				names[i] = name.Name
			}
			i++
		}
	}
	return names[0], names[1]
}

// builderOption moves what is no call: options of watches, and handlers.
func (m *controllerMove) builderOption(n ast.Node) (deeper bool) {
	f := m.file
	if handler, ok := n.(*ast.UnaryExpr); ok {
		literal := literalOf(handler)
		if literal == nil || !f.selects(literal.Type, handlerPath, "EnqueueRequestForObject") {
			return true
		}
		f.replace(n, f.use(mchandlerPath)+".EnqueueRequestForObject")
		return false
	}
	if n, ok := n.(*ast.SelectorExpr); ok {
		x, ok := n.X.(*ast.Ident)
		if !ok {
			return true
		}
		switch pkg := f.imported(x.Name); {
		case pkg == builderPath && slices.Contains([]string{"WithPredicates", "OnlyMetadata", "MatchEveryOwner"}, n.Sel.Name):
			f.replace(x, f.use(mcbuilderPath))
		case pkg == builderPath && n.Sel.Name != "ControllerManagedBy", pkg == handlerPath && !slices.Contains(
			[]string{"EnqueueRequestsFromMapFunc", "EnqueueRequestForOwner", "OnlyControllerOwner"}, n.Sel.Name):
			m.failf(m.file, n, "`%s` has to be moved by hand", f.source(n))
		}
	}
	return true
}

// moved says that the names in these nodes are taken care of.
func moved[N ast.Node](m *controllerMove, nodes ...N) {
	for _, n := range nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				m.seen[id] = true
			}
			return true
		})
	}
}

func (m *controllerMove) mentions(n ast.Node, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

// leftovers finds uses of the hub's manager, and of a reconciler that is not there any more.
func (m *controllerMove) leftovers() {
	built := false
	ast.Inspect(m.setup.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			built = built || m.file.buildsForHub(call)
		}
		id, ok := n.(*ast.Ident)
		switch {
		case !ok || m.seen[id]:
		case id.Name == m.manager:
			m.failf(m.file, id, "the manager is used here for the hub alone")
		case id.Name == m.receiver:
			m.failf(m.file, id, "the reconciler is used here, before there is one for each cluster")
		}
		return true
	})
	if !built {
		m.failf(m.file, m.setup, "no ctrl.NewControllerManagedBy is here")
	}
}
