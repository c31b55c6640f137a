package project

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// moveSuites gives the suites of controllers' tests a hub and members in the place of envtest's control plane. Those that
// need more of it than that, such as those of webhooks, stay as they are.
func (p *Project) moveSuites() error {
	for _, name := range p.goFiles(envtestPath) {
		text, _ := p.read(name)
		f, err := parseGo(name, text)
		if err != nil {
			return fmt.Errorf("%w; %s", err, howToMove)
		}
		s := &suite{goFile: f}
		if problem, at := s.move(); problem != "" {
			p.notef(name, f.line(at), "%s: these tests go on with envtest, and have no members", problem)
			continue
		}
		result, err := f.result()
		if err != nil {
			return err
		}
		p.write(name, result)
	}
	return nil
}

// suite is a file whose BeforeSuite starts a control plane by envtest.
type suite struct {
	*goFile
	before, after *ast.FuncLit
	variable      *ast.ValueSpec // testEnv
	crdPaths      string
	finder        *ast.FuncDecl // of the programs for IDEs
	hasConfig     bool          // there is a variable cfg of the package
}

const (
	envName    = "testEnv"
	configName = "cfg"
	finderName = "getFirstFoundEnvTestBinaryDir"
)

// move moves the suite, or says what keeps it from being moved, and where.
func (s *suite) move() (problem string, at ast.Node) {
	for _, decl := range s.syntax.Decls {
		s.find(decl)
	}
	if s.before == nil || s.variable == nil || s.declares("clusters") {
		return "the suite is not as kubebuilder scaffolds it", s.syntax.Name
	}
	start := slices.IndexFunc(s.before.Body.List, func(stmt ast.Stmt) bool { return s.environment(stmt) != nil })
	if start < 0 {
		return "no control plane is started in BeforeSuite", s.before
	}
	list := s.before.Body.List
	if problem := s.readEnvironment(s.environment(list[start])); problem != "" {
		return problem, list[start]
	}
	end := start
	for i, stmt := range list {
		if i >= start && (s.mentions(stmt, envName) || s.mentions(stmt, "k8sClient") || s.isExpectation(stmt) && i == end+1) {
			end = i
		}
	}
	for _, stmt := range list[end+1:] {
		if s.mentions(stmt, configName) {
			return "more than a client is made of the control plane's config", stmt
		}
	}
	for _, stmt := range list[start : end+1] {
		if !s.isOfStart(stmt) {
			return "the suite starts more than a control plane", stmt
		}
	}
	s.replaceStart(list, start, end)
	s.replaceStop()
	return "", nil
}

// find remembers the parts of the suite.
func (s *suite) find(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Name.Name == finderName {
			s.finder = decl
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			if len(value.Names) == 1 && value.Names[0].Name == envName {
				s.variable = value
			}
			s.hasConfig = s.hasConfig || len(value.Names) == 1 && value.Names[0].Name == configName
			s.findHooks(value)
		}
	}
}

func (s *suite) findHooks(value *ast.ValueSpec) {
	if len(value.Values) != 1 {
		return
	}
	call, ok := value.Values[0].(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	name, _ := call.Fun.(*ast.Ident)
	body, isFunc := call.Args[0].(*ast.FuncLit)
	switch {
	case name == nil || !isFunc:
	case name.Name == "BeforeSuite":
		s.before = body
	case name.Name == "AfterSuite":
		s.after = body
	}
}

// environment returns the literal in testEnv = &envtest.Environment{…}.
func (s *suite) environment(stmt ast.Stmt) *ast.CompositeLit {
	assign, ok := stmt.(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || len(assign.Rhs) != 1 || s.source(assign.Lhs[0]) != envName {
		return nil
	}
	literal := literalOf(assign.Rhs[0])
	if literal == nil || !s.selects(literal.Type, envtestPath, "Environment") {
		return nil
	}
	return literal
}

// readEnvironment takes over what mctest can be told too.
func (s *suite) readEnvironment(literal *ast.CompositeLit) (problem string) {
	for _, e := range literal.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return "the fields of envtest's environment have no names"
		}
		switch field := s.source(kv.Key); field {
		case "CRDDirectoryPaths":
			s.crdPaths = s.source(kv.Value)
		case "ErrorIfCRDPathMissing", "BinaryAssetsDirectory":
		default:
			return field + " is set"
		}
	}
	return ""
}

// isOfStart tells whether a statement only starts the control plane, or makes a client for it.
func (s *suite) isOfStart(stmt ast.Stmt) bool {
	switch stmt.(type) {
	case *ast.AssignStmt, *ast.ExprStmt, *ast.IfStmt:
		return s.mentions(stmt, envName) || s.mentions(stmt, "k8sClient") || s.isExpectation(stmt)
	default:
		return false
	}
}

// isExpectation tells whether a statement is Expect(err).….
func (s *suite) isExpectation(stmt ast.Stmt) bool {
	return strings.HasPrefix(s.source(stmt), "Expect(err)") || strings.HasPrefix(s.source(stmt), "Expect("+configName+")")
}

func (s *suite) mentions(n ast.Node, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

// replaceStart puts the start of control planes in the place of the statements [start, end].
func (s *suite) replaceStart(list []ast.Stmt, start, end int) {
	mctest := s.use(mctestPath)
	s.replace(s.variable.Names[0], "clusters")
	s.replace(s.variable.Type, "*"+mctest+".Fleet")
	var options strings.Builder
	options.WriteString("\t\tClusters: 2,\n")
	if s.crdPaths != "" {
		options.WriteString("\t\tCRDPaths: " + s.crdPaths + ",\n")
	}
	options.WriteString("\t\tScheme: scheme.Scheme,\n")
	made := fmt.Sprintf("clusters = %s.Start(GinkgoTB(), %s.Options{\n%s\t})\n", mctest, mctest, options.String())
	if s.hasConfig {
		made += "\t" + configName + " = clusters.Members[0].Config()\n"
	}
	s.replaceRange(list[start].Pos(), list[end].End(), made+"\tk8sClient = clusters.Members[0].Client()")
	errIsUsed := func(stmt ast.Stmt) bool { _, isDecl := stmt.(*ast.DeclStmt); return !isDecl && s.mentions(stmt, "err") }
	for _, stmt := range list[:start] {
		if s.source(stmt) == "var err error" && !slices.ContainsFunc(list[:start], errIsUsed) && !slices.ContainsFunc(list[end+1:], errIsUsed) {
			s.removeLines(stmt.Pos(), stmt.End())
		}
	}
}

// replaceStop removes what stops the control plane: mctest's end with the suite.
func (s *suite) replaceStop() {
	if s.finder != nil {
		from := s.finder.Pos()
		if s.finder.Doc != nil {
			from = s.finder.Doc.Pos()
		}
		s.removeLines(from, s.finder.End())
	}
	if s.after == nil {
		return
	}
	var stays []ast.Stmt
	stopped := false
	for _, stmt := range s.after.Body.List {
		if ends := s.mentions(stmt, envName); ends || stopped && s.isExpectation(stmt) {
			stopped = stopped || ends
			s.removeLines(stmt.Pos(), stmt.End())
			continue
		}
		stays = append(stays, stmt)
	}
	if !slices.ContainsFunc(stays, func(stmt ast.Stmt) bool { return !strings.HasPrefix(s.source(stmt), "By(") }) {
		s.removeAfterSuite()
	}
}

// removeAfterSuite removes the whole of it. The edits within it would be beside the point.
func (s *suite) removeAfterSuite() {
	for _, decl := range s.syntax.Decls {
		if decl.Pos() < s.after.Pos() && s.after.End() < decl.End() {
			from, to := s.offset(decl.Pos()), s.offset(decl.End())
			s.edits = slices.DeleteFunc(s.edits, func(e edit) bool { return from <= e.from && e.to <= to+1 && e.from < to })
			s.removeLines(decl.Pos(), decl.End())
		}
	}
}
