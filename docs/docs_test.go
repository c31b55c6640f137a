// Package docs_test checks that the project's Markdown says what is so: that its code is code of the project, that what it
// names exists, and that its links lead somewhere.
package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = ".."

// pages returns the Markdown files of the project, by their paths in it.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for path, content := range files(t, ".md") {
		if !strings.Contains(path, "/testdata/") {
			found[path] = content
		}
	}
	if len(found) < 10 {
		t.Fatalf("only %d Markdown files were found", len(found))
	}
	return found
}

// files returns what the project's files with an ending hold.
func files(t *testing.T, ending string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != root {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ending) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inProject, err := filepath.Rel(root, path)
		found[filepath.ToSlash(inProject)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheReadmesProgramIsTheQuickstart(t *testing.T) {
	blocks := goBlocks(pages(t)["README.md"])
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d blocks of Go, want the one of examples/quickstart/main.go", len(blocks))
	}
	program, err := os.ReadFile(filepath.Join(root, "examples", "quickstart", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(program), blocks[0].code); diff != "" {
		t.Errorf("examples/quickstart/main.go and README.md differ (-file, +README):\n%s", diff)
	}
}

// block is a block of Go, and the file that the comment before it names as its source.
type block struct{ source, code string }

var goBlock = regexp.MustCompile("(?m)(?:^<!-- from (\\S+) -->\n)?^```go\n((?s:.*?))^```$")

func goBlocks(page string) []block {
	matches := goBlock.FindAllStringSubmatch(page, -1)
	blocks := make([]block, len(matches))
	for i, match := range matches {
		blocks[i] = block{source: match[1], code: match[2]}
	}
	return blocks
}

// TestGoInPagesIsCompiled: each block of Go that begins after <!-- from FILE --> is in that file, but for indentation.
func TestGoInPagesIsCompiled(t *testing.T) {
	sources := files(t, ".go")
	for path, page := range pages(t) {
		for _, b := range goBlocks(page) {
			if b.source != "" && !strings.Contains(flat(sources[b.source]), flat(b.code)) {
				t.Errorf("%s: this is not in %q:\n%s", path, b.source, b.code)
			}
		}
	}
}

// flat is code without indentation.
func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for path, page := range all {
		for _, match := range link.FindAllStringSubmatch(page, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := path
			if target != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s: %v", path, match[1], err)
			} else if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s links to %s: the page has no such heading", path, match[1])
			}
		}
	}
}

// anchors returns what headings are linked as.
func anchors(page string) []string {
	headings := heading.FindAllStringSubmatch(page, -1)
	slugs := make([]string, len(headings))
	for i, match := range headings {
		slug := noSlug.ReplaceAllString(strings.ToLower(match[1]), "")
		slugs[i] = strings.ReplaceAll(slug, " ", "-")
	}
	return slugs
}

var (
	inline   = regexp.MustCompile("`([^`\n]+)`")
	goFile   = regexp.MustCompile(`^[\w./-]+/[\w.-]+\.go$|^[\w-]+/$`)
	testName = regexp.MustCompile(`^Test[A-Z]\w+$`)
	symbol   = regexp.MustCompile(`^(fleet|mc[a-z]+|kubeconfig|objects|capi|clusterprofile|composite|contexts|dependents|kind|namespaces|orphans|providertest|reference|static|upstream)\.([A-Z]\w*)(?:\.([A-Z]\w*))?\b`)
)

// TestWhatPagesNameExists: files, tests, and what the packages export.
func TestWhatPagesNameExists(t *testing.T) {
	code := files(t, ".go")
	exported := map[string]map[string]bool{}
	for folder, name := range map[string]string{
		"fleet": "fleet", "providers/kubeconfig": "kubeconfig", "providers/objects": "objects", "mctest": "mctest",
		"mcreconcile": "mcreconcile", "mcsource": "mcsource", "mchandler": "mchandler", "mcbuilder": "mcbuilder",
		"mcmanager": "mcmanager", "mcqueue": "mcqueue", "mcwebhook": "mcwebhook", "mcowner": "mcowner", "mcowner/dependents": "dependents",
		"mcowner/orphans": "orphans",
		"providers/capi":  "capi", "providers/clusterprofile": "clusterprofile", "providers/composite": "composite",
		"providers/contexts": "contexts", "providers/kind": "kind", "providers/namespaces": "namespaces",
		"providers/providertest": "providertest", "providers/reference": "reference", "providers/static": "static", "providers/upstream": "upstream",
	} {
		exported[name] = exports(t, code, folder)
	}
	tests := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	known := map[string]bool{}
	for _, content := range code {
		for _, match := range tests.FindAllStringSubmatch(content, -1) {
			known[match[1]] = true
		}
	}
	for path, page := range pages(t) {
		for _, match := range inline.FindAllStringSubmatch(page, -1) {
			name := match[1]
			switch s := symbol.FindStringSubmatch(name); {
			case goFile.MatchString(name):
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s names the file %s: %v", path, name, err)
				}
			case testName.MatchString(name):
				if !known[name] {
					t.Errorf("%s names the test %s, which does not exist", path, name)
				}
			case s != nil:
				if what := strings.TrimSuffix(s[2]+"."+s[3], "."); !exported[s[1]][what] {
					t.Errorf("%s names %s.%s, which does not exist", path, s[1], what)
				}
			}
		}
	}
}

// exports returns what a folder's package exports: NAME for declarations, TYPE.NAME for methods and fields.
func exports(t *testing.T, code map[string]string, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for path, content := range code {
		if filepath.ToSlash(filepath.Dir(path)) != folder || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				names[receiver(decl)+decl.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					exportsOf(spec, names)
				}
			}
		}
	}
	if len(names) == 0 {
		t.Errorf("the folder %s exports nothing", folder)
	}
	return names
}

// receiver returns the type of a method and a point, or nothing for a function.
func receiver(decl *ast.FuncDecl) (prefix string) {
	if decl.Recv == nil {
		return ""
	}
	ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok && prefix == "" {
			prefix = ident.Name + "."
		}
		return prefix == ""
	})
	return prefix
}

func exportsOf(spec ast.Spec, names map[string]bool) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names[name.Name] = true
		}
	case *ast.TypeSpec:
		names[spec.Name.Name] = true
		var fields *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			fields = typ.Fields
		case *ast.InterfaceType:
			fields = typ.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				names[spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}

var explanation = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestEveryDependencyIsExplained: docs/dependencies.md has a line for each direct one, and for no other.
func TestEveryDependencyIsExplained(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	lines := explanation.FindAllStringSubmatch(pages(t)["docs/dependencies.md"], -1)
	explained := make([]string, len(lines))
	for i, line := range lines {
		explained[i] = line[1]
	}
	slices.Sort(direct)
	slices.Sort(explained)
	if diff := cmp.Diff(direct, explained); diff != "" {
		t.Errorf("go.mod and docs/dependencies.md differ (-go.mod, +page):\n%s", diff)
	}
}
