package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// withoutExample has what no example names, each with the reason.
var withoutExample = map[string]string{
	"access.Hub":                          "it is what NewHub returns, which has an example",
	"access.Source":                       "it is what Sources.Source returns, which has an example",
	"v1alpha1.ClusterAccessStatus":        "it is a field of ClusterAccess, of which the example of AddToScheme reads the conditions",
	"v1alpha1.ServiceAccountImportList":   "it is used as ClusterAccessList is",
	"v1alpha1.ServiceAccountImportStatus": "as ClusterAccessStatus",
	"clusterprofile.ArgsPolicy":           "it has constants, which the file of an access provider holds as texts",
	"clusterprofile.EnvPolicy":            "as ArgsPolicy",
	"dependents.ReplacedError":            "it is shown by events; errors.As in Result.Err works as with other errors",
	"fleet.Change":                        "it is what Fleet.Changes gives, which has an example",
	"fleet.Controller":                    "it is for controllers that are built by hand; package mcbuilder is one",
	"fleet.Engagement":                    "it is what Fleet.Engagement returns, which the example of StateError calls",
	"fleet.Guest":                         "it is what Fleet.Guest returns, which has an example",
	"fleet.Leaver":                        "it is for controllers that are built by hand, as Controller",
	"fleet.NotSynced":                     "it is a part of Status, for those that show it",
	"fleet.Owner":                         "it is for those that share members in another way than package sharding does",
	"fleet.Queue":                         "it is for controllers that are built by hand, as Controller",
	"fleet.StepKind":                      "its constants are in the example of Observer",
	"fleet.State":                         "its constants are in examples",
	"fleet.Tenure":                        "as Owner",
	"mcbuilder.TypedBuilder":              "it is what ControllerManagedBy returns",
	"mcbuilder.Call":                      "it is what CallFrom returns, which is in the example of WithMiddleware",
	"mcbuilder.WatchOption":               "the options of watches are in examples",
	"mchandler.MapFunc":                   "a function literal is one, as in the example of EnqueueRequestsAcrossClusters",
	"mchandler.OwnerFilter":               "OnlyController and OfFleet are in examples",
	"mcowner.Differ":                      "it is for those that compare references by themselves, and one line",
	"mcowner.Location":                    "it is a part of Reference",
	"mcqueue.Queue":                       "it is what New returns, which has an example",
	"mcqueue.Stats":                       "it is what Queue.Stats returns",
	"mcsource.OnDemand":                   "it is what NewOnDemand returns, which has an example",
	"mcsource.Replayer":                   "it is for controllers that are built by hand, as Controller",
	"mcsource.Source":                     "Kind, Poll and Func are in examples",
	"mcwebhook.Manager":                   "it is what New returns, which has an example",
	"mctest.Fleet":                        "it is what Start and Pool.Start return",
	"dependents.ChangePolicy":             "its values are in the example of policies",
	"dependents.ConflictPolicy":           "its values are in the example of policies",
	"dependents.ImmutablePolicy":          "its values are in the example of policies",
	"dependents.LeavePolicy":              "its values are in the example of policies",
	"dependents.ObjectResult":             "a Result has them, in the example of policies",
	"dependents.State":                    "its values are in the example of policies",
	"telemetry.Traces":                    "it is what New returns, which has an example",
	"telemetry.TypedMiddleware":           "it is Traces.Middleware, which is in the example of New, for other types of requests",
	"v1alpha1.ConflictPolicy":             "its values are in the example of Replicator",
	"v1alpha1.DeletionPolicy":             "its values are in the example of Replicator",
	"v1alpha1.ChangePolicy":               "its values are in the example of Replicator",
	"mctest.Process":                      "it is a field of ControlPlane, and as that is stopped and started",
	"sharding.Move":                       "Replica.Status, which is in an example, has moves",
	"sharding.ReplicaStatus":              "Replica.Status, which is in an example, has one for each",
	"sharding.State":                      "one of its values is in the example of Replica.Status",
	"sharding.Status":                     "it is what Replica.Status returns, which is in an example",
	"reference.Cluster":                   "as Reference",
	"reference.Error":                     "it is shown by events and states; errors.As in Member.Err works as with kubeconfig.Error",
	"reference.Reference":                 "it is what the function of a Format returns, which Fields makes in the example",
}

// TestWhatUsersCallIsInAnExample: each function and each type that the packages for users export.
func TestWhatUsersCallIsInAnExample(t *testing.T) {
	code := files(t, ".go")
	used := map[string]bool{}
	for file, content := range code {
		if strings.HasSuffix(file, "_test.go") && strings.Contains(content, "\nfunc Example") {
			usedBy(t, file, content, used)
		}
	}
	exported := map[string]bool{}
	for file, content := range code {
		if isForUsers(file) {
			exportedBy(t, file, content, exported)
		}
	}
	if len(exported) < 100 {
		t.Fatalf("only %d exported names were found", len(exported))
	}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		reason, excepted := withoutExample[name]
		plain := strings.Replace(name, "Typed", "", 1) // the same for requests of type mcreconcile.Request
		if plain != name && (used[plain] || withoutExample[plain] != "") {
			continue
		}
		switch {
		case !used[name] && !excepted:
			t.Errorf("%s is in no example", name)
		case used[name] && excepted:
			t.Errorf("%s is in an example, so it needs no reason (%s)", name, reason)
		}
	}
	for name := range withoutExample {
		if !exported[name] {
			t.Errorf("%s is not exported", name)
		}
	}
}

// isForUsers reports whether a file is part of a package that users import.
func isForUsers(file string) bool {
	folder := path.Dir(file)
	for _, own := range []string{"docs", "examples", "hack", "test"} {
		if folder == own || strings.HasPrefix(folder, own+"/") {
			return false
		}
	}
	return folder != "." && !strings.Contains("/"+folder+"/", "/internal/") && !strings.HasSuffix(file, "_test.go")
}

// usedBy adds what the examples in a file use, and what is beside them there, as PACKAGE.NAME.
func usedBy(t *testing.T, file, content string, used map[string]bool) {
	t.Helper()
	ast.Inspect(parse(t, file, content), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !strings.HasPrefix(n.Name.Name, "Test")
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok {
				used[pkg.Name+"."+n.Sel.Name] = true
			}
		}
		return true
	})
}

// exportedBy adds the functions and types that a file exports, as PACKAGE.NAME.
func exportedBy(t *testing.T, file, content string, exported map[string]bool) {
	t.Helper()
	parsed := parse(t, file, content)
	add := func(name *ast.Ident) {
		if name.IsExported() && parsed.Name.Name != "main" {
			exported[parsed.Name.Name+"."+name.Name] = true
		}
	}
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				add(decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					add(spec.Name)
				}
			}
		}
	}
}

func parse(t *testing.T, file, content string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
