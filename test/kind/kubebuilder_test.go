package kind

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// logic is what the scaffolded reconciler does in this test.
const logic = `var guestbook webappv1.Guestbook
	if err := r.Get(ctx, req.NamespacedName, &guestbook); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	guestbook.Annotations["example.com/reconciled"] = "yes"
	if err := r.Update(ctx, &guestbook); err != nil {
		return ctrl.Result{}, err
	}`

// testKubebuilder goes from an empty folder to objects that are reconciled in two members, by the commands of docs/kubebuilder.md.
func (c *clusters) testKubebuilder(t *testing.T) {
	p := newProject(t, c)
	for n, line := range documented(t) {
		begun := time.Now()
		switch {
		case n == 0:
			p.outside(t, line+" --fleet-runtime-replace=$FLEET")
		case strings.HasPrefix(line, "kubebuilder "):
			p.outside(t, line)
			p.change(t, "internal/controller/guestbook_controller.go", "// TODO(user): your logic here", logic)
			p.change(t, "config/samples/webapp_v1_guestbook.yaml", "spec:\n", "spec: {}\n")
			p.outside(t, "make manifests generate kustomize") // which downloads what make needs below
		case strings.HasPrefix(line, "go run "):
			p.outside(t, line)
		case line == "kind load image-archive guestbook.tar --name hub":
			must(t, c.loadArchive(hub, filepath.Join(p.folder, "guestbook.tar")))
		default:
			p.inside(t, line)
		}
		t.Logf("%s: %s", time.Since(begun).Round(time.Second), line)
	}
	c.kubectl(t, hub, "--namespace", "guestbook-system", "rollout", "status", "deployment/guestbook-controller-manager", "--timeout", patience.String())
	for _, member := range []string{east, west} {
		c.kubectl(t, member, "wait", "--for=condition=Established", "--timeout", patience.String(), "crd/guestbooks.webapp.example.com")
		c.kubectl(t, member, "apply", "-f", filepath.Join(p.folder, "config/samples/webapp_v1_guestbook.yaml"))
		c.prints(t, "yes", member, "get", "guestbook", "guestbook-sample", "--output", `jsonpath={.metadata.annotations.example\.com/reconciled}`)
		c.kubectl(t, member, "delete", "guestbook", "guestbook-sample", "--timeout", patience.String())
	}
	c.kubectl(t, hub, "--namespace", "guestbook-system", "delete", "deployment", "guestbook-controller-manager", "--timeout", patience.String())
}

// project is a folder in which kubebuilder is run, with the plugin of this repository.
type project struct {
	folder string
	env    []string
	shell  string // what lines before have set
}

func newProject(t *testing.T, c *clusters) *project {
	t.Helper()
	repository, err := filepath.Abs(root)
	must(t, err)
	module, bin, plugins := filepath.Join(repository, "cmd/kubebuilder-fleet"), t.TempDir(), t.TempDir()
	kubebuilder, err := outside(t.Context(), module, nil, "go", "tool", "-n", "sigs.k8s.io/kubebuilder/v4") // the go command builds it
	must(t, err)
	must(t, os.Symlink(strings.TrimSpace(kubebuilder), filepath.Join(bin, "kubebuilder")))
	_, err = outside(t.Context(), module, []string{"EXTERNAL_PLUGINS_PATH=" + plugins}, "go", "run", ".", "install")
	must(t, err)

	p := &project{folder: filepath.Join(t.TempDir(), "guestbook"), env: []string{
		"PATH=" + strings.Join([]string{bin, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, string(os.PathListSeparator)),
		"EXTERNAL_PLUGINS_PATH=" + plugins, "KUBECONFIG=" + c.kubeconfig, "FLEET=" + repository, "MAKEFLAGS=", "MAKELEVEL=",
	}}
	must(t, os.Mkdir(p.folder, 0o750)) // which becomes the project's name
	t.Cleanup(func() {
		if t.Failed() {
			logs, err := c.try(context.WithoutCancel(t.Context()), "kubectl", "--context", contextOf(hub), "--namespace", "guestbook-system", "logs",
				"deployment/guestbook-controller-manager", "--tail", "60")
			t.Logf("the project's manager has logged, error %v:\n%s", err, logs)
		}
	})
	return p
}

// outside runs a line in the project's folder, where the module proxy can be reached.
func (p *project) outside(t *testing.T, line string) {
	t.Helper()
	_, err := outside(t.Context(), p.folder, p.env, "bash", "-c", line)
	must(t, err)
}

// inside runs a line in the project's folder, where the clusters can be reached. What it sets holds for the next.
func (p *project) inside(t *testing.T, line string) {
	t.Helper()
	line = strings.NewReplacer("kind-", "kind-"+prefix, "https://", "https://"+prefix).Replace(line)
	if regexp.MustCompile(`^\w+="`).MatchString(line) {
		p.shell += line + "\n"
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", p.shell+line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.folder, append(os.Environ(), p.env...), often // its children may outlive bash
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, output)
	}
}

func (p *project) change(t *testing.T, name, old, with string) {
	t.Helper()
	path := filepath.Join(p.folder, name)
	text, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s lacks %q:\n%s", name, old, text)
	}
	must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, with)), 0o600))
}

// documented returns the lines of docs/kubebuilder.md that lead into clusters of kind.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/kubebuilder.md")
	must(t, err)
	block := regexp.MustCompile("(?s)<!-- run by test/kind -->\n```console\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/kubebuilder.md lacks the commands")
	}
	var lines []string
	for line := range strings.Lines(string(block[1])) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	}
	return lines
}
