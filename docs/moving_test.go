package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The project of a kubebuilder user, before and after it has moved.
const before, after = "../test/kubebuilder/before", "../test/kubebuilder/after"

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestTheReconcilerOfAMovedProjectIsUntouched: byte for byte, all but imports and SetupWithManager.
func TestTheReconcilerOfAMovedProjectIsUntouched(t *testing.T) {
	const controller = "/internal/controller/guestbook_controller.go"
	if diff := cmp.Diff(reconciler(t, before+controller), reconciler(t, after+controller)); diff != "" {
		t.Errorf("the reconciler has changed (-before, +after):\n%s", diff)
	}
}

// reconciler returns a controller's file without its imports and without what sets it up.
func reconciler(t *testing.T, path string) (kept string) {
	t.Helper()
	content := read(t, path)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	rest := 0 // where what is not in kept yet begins
	leaveOut := func(from, to token.Pos) {
		kept += content[rest:files.Position(from).Offset]
		rest = files.Position(to).Offset
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			if decl.Tok == token.IMPORT {
				leaveOut(decl.Pos(), decl.End())
			}
		case *ast.FuncDecl:
			if name := decl.Name.Name; strings.HasSuffix(name, "WithManager") || name == "newGuestbookReconciler" {
				leaveOut(decl.Doc.Pos(), decl.End())
			}
		}
	}
	return strings.TrimSpace(kept + content[rest:])
}

// TestWhatIsNotSaidToChangeDoesNot: the API, the CRD, and the test of the reconciler alone.
func TestWhatIsNotSaidToChangeDoesNot(t *testing.T) {
	for _, file := range []string{
		"PROJECT", "api/v1/groupversion_info.go", "api/v1/guestbook_types.go", "api/v1/zz_generated.deepcopy.go", "config/crd/kustomization.yaml",
		"config/crd/bases/webapp.example.com_guestbooks.yaml", "config/manager/manager.yaml", "internal/controller/guestbook_controller_test.go",
	} {
		if diff := cmp.Diff(read(t, before+"/"+file), read(t, after+"/"+file)); diff != "" {
			t.Errorf("%s has changed (-before, +after):\n%s", file, diff)
		}
	}
	for _, moved := range []string{"role.yaml", "role_binding.yaml", "service_account.yaml"} {
		if diff := cmp.Diff(read(t, before+"/config/rbac/"+moved), read(t, after+"/config/member/"+moved)); diff != "" {
			t.Errorf("%s has changed on its way (-before, +after):\n%s", moved, diff)
		}
	}
}

// TestThePageOnMovingSaysWhatBecomesOfEachManifest that is another one after the move, or in another place.
func TestThePageOnMovingSaysWhatBecomesOfEachManifest(t *testing.T) {
	page := pages(t)["docs/moving-from-controller-runtime.md"]
	for _, project := range []struct{ folder, other string }{{before, after}, {after, before}} {
		err := filepath.WalkDir(project.folder+"/config", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name := strings.TrimPrefix(path, project.folder+"/")
			if same, err := os.ReadFile(filepath.Join(project.other, name)); err == nil && string(same) == read(t, path) {
				return nil
			}
			if !strings.Contains(page, "\n| `"+name+"`") {
				t.Errorf("the page does not say what becomes of %s", name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

var (
	diffBlock = regexp.MustCompile("(?m)^<!-- diff (\\S+) (\\S+) -->\n```diff\n((?s:.*?))^```$")
	yamlBlock = regexp.MustCompile("(?m)^<!-- from (\\S+) -->\n```yaml\n((?s:.*?))^```$")
)

// TestDiffsInPagesAreWhole: a block of changes after <!-- diff OLD NEW --> makes of the one file the other.
func TestDiffsInPagesAreWhole(t *testing.T) {
	page := pages(t)["docs/moving-from-controller-runtime.md"]
	added, removed, blocks := 0, 0, diffBlock.FindAllStringSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Errorf("the page has %d blocks of changes, want three", len(blocks))
	}
	for _, block := range blocks {
		got := read(t, filepath.Join(root, block[1]))
		for hunk := range strings.SplitSeq(block[3], "\n …\n") {
			from, to := sides(hunk)
			if strings.Count(got, from) != 1 {
				t.Errorf("this is not once in %s:\n%s", block[1], from)
			}
			got = strings.Replace(got, from, to, 1)
		}
		if diff := cmp.Diff(read(t, filepath.Join(root, block[2])), got); diff != "" {
			t.Errorf("the page makes something else of %s than %s (-file, +page):\n%s", block[1], block[2], diff)
		}
		added += strings.Count("\n"+block[3], "\n+")
		removed += strings.Count("\n"+block[3], "\n-")
	}
	if count := fmt.Sprintf("%d lines added and %d removed", added, removed); !strings.Contains(page, count) {
		t.Errorf("the page does not say %q", count)
	}
}

// TestThePageOnMovingNamesTheVersions that the moved project has.
func TestThePageOnMovingNamesTheVersions(t *testing.T) {
	page, mod := pages(t)["docs/moving-from-controller-runtime.md"], read(t, after+"/go.mod")
	for _, version := range []struct{ in, says string }{
		{`(?m)^go (\d+\.\d+)`, "| Go | %s or newer"},
		{`controller-runtime (v[\d.]+)`, "controller-runtime@%s`"},
		{`k8s.io/client-go (v\d+\.\d+)`, "k8s.io/client-go %s with it"},
	} {
		match := regexp.MustCompile(version.in).FindStringSubmatch(mod)
		if says := fmt.Sprintf(version.says, match[1]); !strings.Contains(page, says) {
			t.Errorf("the page does not say %q", says)
		}
	}
}

// TestConformanceTestsToCopyNeedNoOtherFile of their packages, nor what is internal.
func TestConformanceTestsToCopyNeedNoOtherFile(t *testing.T) {
	for _, files := range [][]string{
		{"fleet/inventory_test.go", "fleet/conformance_test.go"},
		{"providers/objects/conformance_test.go"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, files...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v do not compile by themselves: %v\n%s", files, err, out)
		}
		for _, file := range files {
			if strings.Contains(read(t, filepath.Join(root, file)), "/internal/") {
				t.Errorf("%s imports what is internal", file)
			}
		}
	}
}

// sides returns what a hunk says was there, and what is to be there.
func sides(hunk string) (from, to string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(hunk, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "-"):
			from += line[1:] + "\n"
		case strings.HasPrefix(line, "+"):
			to += line[1:] + "\n"
		default:
			line = strings.TrimPrefix(line, " ")
			from, to = from+line+"\n", to+line+"\n"
		}
	}
	return from, to
}

// TestManifestsInPagesAreThoseOfFiles: each block of YAML after <!-- from FILE --> is that file.
func TestManifestsInPagesAreThoseOfFiles(t *testing.T) {
	for path, page := range pages(t) {
		for _, block := range yamlBlock.FindAllStringSubmatch(page, -1) {
			if diff := cmp.Diff(read(t, filepath.Join(root, block[1])), block[2]); diff != "" {
				t.Errorf("%s shows something else than %s (-file, +page):\n%s", path, block[1], diff)
			}
		}
	}
}
