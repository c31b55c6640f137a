package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const repositoryRoot = "../.."

// TestWhatIsPublishedCanBeHad from a module proxy, where nothing replaces anything: programs by go install, libraries by go get.
func TestWhatIsPublishedCanBeHad(t *testing.T) {
	const version = "v0.1.0"
	all, err := modules(t.Context(), repositoryRoot)
	if err != nil {
		t.Fatal(err)
	}
	proxy, bin := t.TempDir(), t.TempDir()
	env := append(os.Environ(), "GOWORK=off", "GONOSUMDB=*", "GOMODCACHE="+t.TempDir(), "GOBIN="+bin, "GOFLAGS=-mod=mod -modcacherw -trimpath",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(output(t, ".", nil, "go", "env", "GOMODCACHE"), "cache", "download")+","+output(t, ".", nil, "go", "env", "GOPROXY"))
	for _, m := range all {
		serve(t, proxy, m, version)
	}
	user := t.TempDir()
	text := "module example.com/user\n\ngo 1.26.0\n"
	var libraries []string
	for _, m := range all {
		if strings.HasPrefix(m.folder, "cmd/") {
			output(t, user, env, "go", "install", m.path+"@"+version)
			if _, err := os.Stat(filepath.Join(bin, filepath.Base(m.folder))); err != nil {
				t.Errorf("go install has left no program: %v", err)
			}
			continue
		}
		text += "require " + m.path + " " + version + "\n"
		libraries = append(libraries, m.path+"/...")
	}
	if err := os.WriteFile(filepath.Join(user, "go.mod"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, user, env, "go", append([]string{"list", "-deps"}, libraries...)...) // which finds each import
}

// serve puts a module into the folder of a module proxy, as it is once it is tagged.
func serve(t *testing.T, proxy string, m goModule, version string) {
	t.Helper()
	folder := filepath.Join(repositoryRoot, m.folder)
	if len(m.takes) > 0 {
		copied := filepath.Join(t.TempDir(), "module")
		if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		folder = copied
		output(t, folder, nil, "go", append([]string{"mod", "edit"}, m.edits(version)...)...)
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"list": version, version + ".info": fmt.Sprintf(`{"Version": %q}`, version), version + ".mod": string(mod)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := zip.CreateFromDir(file, gomodule.Version{Path: m.path, Version: version}, folder); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, folder string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = folder, env, t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(string(out))
}

// TestEachModuleHasATag and one that takes others from the checkout gets it after these.
func TestEachModuleHasATag(t *testing.T) {
	root := repository(t)
	for name, content := range map[string]string{
		"go.mod":            "module " + of + "\n",
		"examples/go.mod":   "module " + of + "/examples\n",
		"a/testdata/go.mod": "module " + of + "/a/testdata\n",
		"providers/go.mod":  "module " + of + "/providers\n\nrequire " + of + " v0.0.0\n\nreplace " + of + " => ..\n",
		"app/go.mod":        "module " + of + "/app\n\nrequire (\n" + of + " v0.0.0\n" + of + "/providers v0.0.0\n)\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output(t, root, nil, "git", "add", ".")
	var said strings.Builder
	if err := sayHowToPublish(t.Context(), &said, root, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	want := `Nothing is published. First tag this commit, and push the tags:
  git tag v0.1.0
  git tag operator/v0.1.0
  git tag tool/v0.1.0
Then those modules that take ` + of + ` from this checkout, on a branch of its own, since go ignores what dependencies replace:
  go -C providers mod edit -dropreplace=` + of + ` -require=` + of + `@v0.1.0 && go -C providers mod tidy
  git commit -am providers/v0.1.0 && git tag providers/v0.1.0
  go -C app mod edit -dropreplace=` + of + ` -require=` + of + `@v0.1.0 -dropreplace=` + of + `/providers -require=` + of + `/providers@v0.1.0 && go -C app mod tidy
  git commit -am app/v0.1.0 && git tag app/v0.1.0
`
	if said.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", said.String(), want)
	}
}

func TestAProgramIsReleasedWhereItRuns(t *testing.T) {
	unix := program{name: "unix", systems: []string{"linux", "darwin"}}
	for name, c := range map[string]struct {
		p    program
		on   string
		want bool
	}{
		"everywhere":                 {tool, "windows", true},
		"where it runs":              {unix, "darwin", true},
		"where it does not run":      {unix, "windows", false},
		"an image of Linux":          {operator, "linux", true},
		"an image of something else": {operator, "darwin", false},
	} {
		if got := c.p.isFor(c.on); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
