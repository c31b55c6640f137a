package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// testKubebuilder deploys what was scaffolded, by the commands of docs/kubebuilder.md, up to objects that are reconciled in two members.
func (c *clusters) testKubebuilder(t *testing.T) {
	p := c.later.project
	c.logsIfItFails(t, "guestbook-system", "guestbook-controller-manager")
	for _, line := range p.lines[p.scaffolded():] {
		begun := time.Now()
		if line == "kind load image-archive guestbook.tar --name hub" {
			must(t, c.loadArchive(hub, filepath.Join(p.folder, "guestbook.tar")))
		} else {
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
	folder, bin, plugins, repository string
	env                              []string
	lines                            []string // of docs/kubebuilder.md
	shell                            string   // what lines before have set
}

func newProject(t *testing.T, c *clusters) (*project, error) {
	t.Helper()
	repository, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	p := &project{folder: filepath.Join(t.TempDir(), "guestbook"), bin: t.TempDir(), plugins: t.TempDir(), repository: repository}
	p.env = []string{
		"PATH=" + strings.Join([]string{p.bin, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, string(os.PathListSeparator)),
		"EXTERNAL_PLUGINS_PATH=" + p.plugins, "KUBECONFIG=" + c.kubeconfig, "FLEET=" + repository, "MAKEFLAGS=", "MAKELEVEL=",
	}
	if p.lines, err = documented(); err != nil {
		return nil, err
	}
	return p, os.Mkdir(p.folder, 0o750) // which becomes the project's name
}

// scaffolded is how many lines come before those that need clusters.
func (p *project) scaffolded() int {
	return slices.IndexFunc(p.lines, func(line string) bool {
		return !strings.HasPrefix(line, "kubebuilder ") && !strings.HasPrefix(line, "go run ")
	})
}

// scaffold goes from an empty folder to an image of the project.
func (p *project) scaffold(ctx context.Context) error {
	module := filepath.Join(p.repository, "cmd/kubebuilder-fleet")
	kubebuilder, err := outside(ctx, module, nil, "go", "tool", "-n", "sigs.k8s.io/kubebuilder/v4") // the go command builds it
	if err == nil {
		err = os.Symlink(strings.TrimSpace(kubebuilder), filepath.Join(p.bin, "kubebuilder"))
	}
	if err == nil {
		_, err = outside(ctx, module, []string{"EXTERNAL_PLUGINS_PATH=" + p.plugins}, "go", "run", ".", "install")
	}
	for n, line := range p.lines[:p.scaffolded()] {
		if err != nil {
			return err
		}
		if n == 0 {
			line += " --fleet-runtime-replace=$FLEET"
		}
		err = p.outside(ctx, line)
		if err == nil && strings.HasPrefix(line, "kubebuilder create api ") {
			err = p.write(ctx)
		}
	}
	return err
}

// write does what a user does in a new project.
func (p *project) write(ctx context.Context) error {
	return errors.Join(
		p.change("internal/controller/guestbook_controller.go", "// TODO(user): your logic here", logic),
		p.change("config/samples/webapp_v1_guestbook.yaml", "spec:\n", "spec: {}\n"),
		p.outside(ctx, "make manifests generate kustomize"), // which downloads what make needs below
	)
}

// outside runs a line in the project's folder, where the module proxy can be reached.
func (p *project) outside(ctx context.Context, line string) error {
	_, err := outside(ctx, p.folder, p.env, "bash", "-c", line)
	return err
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

func (p *project) change(name, old, with string) error {
	path := filepath.Join(p.folder, name)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), old) {
		return fmt.Errorf("%s lacks %q:\n%s", name, old, text)
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, with)), 0o600)
}

// documented returns the lines of docs/kubebuilder.md that lead into clusters of kind.
func documented() ([]string, error) {
	page, err := os.ReadFile(root + "/docs/kubebuilder.md")
	if err != nil {
		return nil, err
	}
	block := regexp.MustCompile("(?s)<!-- run by test/kind -->\n```console\n(.*?)```").FindSubmatch(page)
	if block == nil {
		return nil, errors.New("docs/kubebuilder.md lacks the commands")
	}
	var lines []string
	for line := range strings.Lines(string(block[1])) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	}
	return lines, nil
}
