package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// quietFolders are those of programs, and of what tests need. Users do not read what they log.
var quietFolders = regexp.MustCompile(`^(examples|operators|hack|test|mctest|docs|providers/providertest|providers/internal/hubtest)/`)

// TestTheLogIsDescribed: docs/operating.md has each message that the library logs, and no other.
func TestTheLogIsDescribed(t *testing.T) {
	logged, texts := map[string]string{}, map[string]bool{}
	for name, content := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || quietFolders.MatchString(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if expr, ok := n.(ast.Expr); ok {
				if text, ok := literal(expr); ok {
					texts[text] = true
				}
			}
			if call, ok := n.(*ast.CallExpr); ok {
				for _, text := range messages(call) {
					logged[text] = name
				}
			}
			return true
		})
	}
	described := describedMessages(pages(t)["docs/operating.md"])
	for _, text := range slices.Sorted(maps.Keys(logged)) {
		if !slices.Contains(described, text) {
			t.Errorf("%s logs %q, which docs/operating.md does not describe", logged[text], text)
		}
	}
	for _, text := range described {
		if !texts[text] {
			t.Errorf("docs/operating.md describes the message %q, which is nowhere in the code", text)
		}
	}
	if len(logged) < 30 {
		t.Errorf("only %d messages were found", len(logged))
	}
}

// messages returns what a call of logr's Info or Error logs: the literals in the argument that is the message. Of a call of
// something else that is called so, it is none, or a text that no page has.
func messages(call *ast.CallExpr) (texts []string) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "http" {
		return nil
	}
	at := 0
	switch inner, _ := selector.X.(*ast.SelectorExpr); {
	case selector.Sel.Name != "Info" && selector.Sel.Name != "Error":
		return nil
	case selector.Sel.Name == "Error", inner != nil && inner.Sel.Name == "LogSink": // after an error, or a level
		at = 1
	}
	if len(call.Args) <= at {
		return nil
	}
	ast.Inspect(call.Args[at], func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := literal(expr)
		if ok {
			texts = append(texts, text)
		}
		return !ok
	})
	return texts
}

// literal returns the value of a string, or of strings that are put together.
func literal(expr ast.Expr) (string, bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expr.Value)
		return text, expr.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := literal(expr.X)
		right, also := literal(expr.Y)
		return left + right, ok && also && expr.Op == token.ADD
	default:
		return "", false
	}
}

var messageRow = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")

// describedMessages returns the messages in the tables of the section about logs.
func describedMessages(page string) (texts []string) {
	_, section, _ := strings.Cut(page, "\n## Logs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range messageRow.FindAllStringSubmatch(section, -1) {
		for _, code := range inline.FindAllStringSubmatch(row[1], -1) {
			texts = append(texts, code[1])
		}
	}
	return texts
}

// TestManifestsInPagesAreFiles: each block of YAML that begins after <!-- from FILE --> is that file.
func TestManifestsInPagesAreFiles(t *testing.T) {
	manifests := files(t, ".yaml")
	block := regexp.MustCompile("(?m)^<!-- from (\\S+\\.yaml) -->\n```yaml\n((?s:.*?))^```$")
	for page, content := range pages(t) {
		for _, match := range block.FindAllStringSubmatch(content, -1) {
			if manifests[path.Clean(match[1])] != match[2] {
				t.Errorf("%s: this is not %s:\n%s", page, match[1], match[2])
			}
		}
	}
}
