package project

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
)

const (
	repository     = "../../../.."
	before, after  = repository + "/test/kubebuilder/before", repository + "/test/kubebuilder/after"
	controllerFile = "internal/controller/guestbook_controller.go"
	suiteFile      = "internal/controller/suite_test.go"
)

// filesOf returns the files of a folder, as kubebuilder sends them.
func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, path))
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func byKubeconfig() Options {
	return Options{Provider: providers["kubeconfig"], Namespace: "fleet", Replace: "../../.."}
}

// move moves a project, and returns its files then, and what is left to a person.
func move(t *testing.T, files map[string]string) (moved map[string]string, notes []string) {
	t.Helper()
	p, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Move(byKubeconfig()); err != nil {
		t.Fatal(err)
	}
	moved = maps.Clone(files)
	maps.Copy(moved, p.Changed())
	for _, note := range p.Notes() {
		notes = append(notes, note.String())
	}
	return moved, notes
}

// TestAProjectIsMovedAsByHand compares what the plugin makes of the project of the docs with what a person made of it.
func TestAProjectIsMovedAsByHand(t *testing.T) {
	moved, notes := move(t, filesOf(t, before))
	want := filesOf(t, after)
	for _, name := range []string{"cmd/main_test.go", "internal/controller/guestbook_fleet_test.go"} {
		delete(want, name) // tests that a person wrote
	}
	want["go.sum"] = moved["go.sum"] // go mod tidy comes later, also for what only the tests of that person need
	want["go.mod"] = regexp.MustCompile(`\tk8s.io/component-helpers .*// indirect\n`).ReplaceAllString(want["go.mod"], "")
	// kubebuilder looks for its line and its markers when it creates the next API.
	for name, line := range map[string]string{
		"config/default/kustomization.yaml": "# CRDs are in config/member: - ../crd\n",
		memberKustomization:                 "# +kubebuilder:scaffold:member\n",
	} {
		if !strings.Contains(moved[name], line) {
			t.Errorf("%s lacks the line %q", name, line)
		}
		moved[name] = strings.Replace(moved[name], line, "", 1)
	}
	for _, name := range ofMembers { // no plugin can delete files
		if moved["config/rbac/"+name] != fmt.Sprintf(movedComment, "config/member/"+name) {
			t.Errorf("config/rbac/%s does not say that it has moved:\n%s", name, moved["config/rbac/"+name])
		}
		delete(moved, "config/rbac/"+name)
	}
	if diff := cmp.Diff(want, moved); diff != "" {
		t.Errorf("by hand, and by the plugin (-hand, +plugin):\n%s", diff)
	}
	wantNotes := []string{
		"Makefile: it is missing: controller-gen is to run with output:rbac:artifacts:config=config/member, and config/hub to be deployed",
		"PROJECT:3: add - fleet.fleet-runtime.dev/v1 below this line, so that kubebuilder create api scaffolds controllers of the fleet",
		"config/rbac/role.yaml: delete it; it is in config/member now",
		"config/rbac/role_binding.yaml: delete it; it is in config/member now",
		"internal/controller/guestbook_controller.go:59: the finalizer stays in members that are removed, unless the reconciler asks mcreconcile.Leaving",
	}
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Errorf("what is left (-want, +got):\n%s", diff)
	}
}

func TestMovingAProjectAgainChangesNothing(t *testing.T) {
	once, _ := move(t, filesOf(t, before))
	byHand := filesOf(t, after)
	for name, files := range map[string]map[string]string{"by the plugin": once, "by hand": byHand} {
		twice, _ := move(t, files)
		if diff := cmp.Diff(files, twice); diff != "" {
			t.Errorf("moved %s, and once more (-once, +twice):\n%s", name, diff)
		}
	}
}

// TestMarkersAreNotNeeded: what they mark is found by syntax too.
func TestMarkersAreNotNeeded(t *testing.T) {
	files := filesOf(t, before)
	files[mainFile] = strings.ReplaceAll(files[mainFile], "// +kubebuilder:scaffold:", "// once a marker: ")
	moved, _ := move(t, files)
	want := strings.ReplaceAll(filesOf(t, after)[mainFile], "// +kubebuilder:scaffold:", "// once a marker: ")
	if diff := cmp.Diff(want, moved[mainFile]); diff != "" {
		t.Errorf("main.go without markers (-want, +got):\n%s", diff)
	}
}

func TestTheEndsOfLinesStay(t *testing.T) {
	files := filesOf(t, before)
	want, _ := move(t, files)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "\n", "\r\n")
	}
	moved, _ := move(t, files)
	for name := range files {
		if moved[name] != strings.ReplaceAll(want[name], "\n", "\r\n") {
			t.Errorf("%s has other lines if they end with \\r\\n:\n%s", name, cmp.Diff(want[name], strings.ReplaceAll(moved[name], "\r\n", "\n")))
		}
	}
}

func TestAProjectThatIsNotUnderstoodIsNotMoved(t *testing.T) {
	const newManager = "mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{"
	for name, tc := range map[string]struct{ file, old, new, err string }{
		"another layout":          {"PROJECT", "go.kubebuilder.io/v4", "go.kubebuilder.io/v3", "the layout is not"},
		"no main.go":              {mainFile, "", "", "cmd/main.go is missing"},
		"no go.mod":               {"go.mod", "", "", "go.mod is missing"},
		"main.go that is no Go":   {mainFile, "func main() {", "func main( {", "parsing Go"},
		"no manager":              {mainFile, newManager, "mgr, err := newManager(ctrl.Options{", "is there 0 times"},
		"two managers":            {mainFile, newManager, newManager + "})\n_, _ = mgr, err\n}\nfunc other() {" + newManager, "is there 2 times"},
		"a variable of main.go's": {mainFile, "mgr, err := ctrl.NewManager", "var mgr ctrl.Manager\nvar err error\nmgr, err = ctrl.NewManager", "is there 0 times"},
		"go.mod that is none":     {"go.mod", "go 1.26.0", "go one", "go.mod:3"},
		"a controller that is no Go": {
			controllerFile, "func (r *GuestbookReconciler) serve(", "func (r *GuestbookReconciler serve(", "parsing Go",
		},
		"no kustomization": {"config/default/kustomization.yaml", "resources:", "resources: [", "kustomization.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, before)
			if tc.old == "" {
				delete(files, tc.file)
			} else if files[tc.file] = strings.Replace(files[tc.file], tc.old, tc.new, 1); !strings.Contains(files[tc.file], tc.new) {
				t.Fatal("nothing was replaced")
			}
			p, err := New(files)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Move(byKubeconfig())
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), howToMove) {
				t.Errorf("Move returned %v, want an error that says %q and what to do", err, tc.err)
			}
		})
	}
}

// TestAnyLineMayBeMissing: each in turn is taken from the last of the files of Go. Then the project is moved in part, or an error says why not.
// What is moved is Go.
func TestAnyLineMayBeMissing(t *testing.T) {
	all := filesOf(t, before)
	for _, file := range []string{mainFile, controllerFile, suiteFile} {
		lines := strings.SplitAfter(all[file], "\n")
		for i := max(0, len(lines)-60); i < len(lines); i++ { // before these are flags, and the reconciler
			files := maps.Clone(all)
			files[file] = strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")
			p, err := New(files)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Move(byKubeconfig()); err != nil {
				continue
			}
			for name, text := range p.Changed() {
				if _, err := parseGo(name, text); strings.HasSuffix(name, ".go") && err != nil {
					t.Errorf("without line %d of %s: %v", i+1, file, err)
				}
			}
		}
	}
}

func TestPathsThatLeadOutOfTheProjectAreRefused(t *testing.T) {
	for _, name := range []string{"../main.go", "/etc/passwd", "cmd/../../main.go", `..\main.go`, "", "a\x00b"} {
		if _, err := New(map[string]string{name: ""}); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

// TestAControllerThatCannotBeMovedStaysInTheHub and the line is said that keeps it from being moved.
func TestAControllerThatCannotBeMovedStaysInTheHub(t *testing.T) {
	for name, tc := range map[string]struct{ file, old, new, note string }{
		"a handler of its own": {
			controllerFile, "handler.EnqueueRequestsFromMapFunc(r.ofSecret)", "handler.Funcs{}", controllerFile + ":167: `handler.Funcs` has to be moved by hand",
		},
		"a source":              {controllerFile, `Named("guestbook").`, "WatchesRawSource(nil).", controllerFile + ":169: a source becomes one of package mcsource"},
		"the manager's client":  {controllerFile, "if err != nil {\n\t\treturn err\n\t}\n\treturn ctrl.New", "_ = mgr.GetClient()\n\treturn ctrl.New", ": the manager is used here for the hub alone"},
		"a field of it":         {controllerFile, `Named("guestbook").`, "Named(r.name).", controllerFile + ":169: the reconciler is used here"},
		"a map function's call": {controllerFile, "(r.ofSecret)", "(r.ofSecret(mgr))", controllerFile + ":167: the map function"},
		"another parameter":     {controllerFile, "SetupWithManager(mgr ctrl.Manager)", "SetupWithManager(mgr ctrl.Manager, n int)", ":158: SetupWithManager takes something else"},
		"another reconciler":    {controllerFile, "Complete(r)", "Complete(wrap(r))", "is not the reconciler itself"},
		"no builder":            {controllerFile, "ctrl.NewControllerManagedBy(mgr)", "newBuilder()", "no ctrl.NewControllerManagedBy is here"},
		"a name that is taken":  {controllerFile, "// secretNameOf is", "func newGuestbookReconciler() {}\n\n// secretNameOf is", "there is a function newGuestbookReconciler already"},
		"fields without names":  {mainFile, "Client:   mgr.GetClient(),\n\t\tScheme:   mgr.GetScheme(),\n\t\tRecorder: mgr.GetEventRecorder(\"guestbook-controller\"),", "mgr.GetClient(), mgr.GetScheme(), nil,", mainFile + ":76: the reconciler's fields have no names"},
		"a value of main's":     {mainFile, "Scheme:   mgr.GetScheme(),", "Scheme:   scheme,", mainFile + ":77: newGuestbookReconciler cannot make `scheme` of a cluster"},
		"another call": {
			suiteFile, "func TestControllers(", "func setup() error { return (&GuestbookReconciler{}).SetupWithManager(nil) }\n\nfunc TestControllers(",
			suiteFile + ":23: SetupWithManager is called here too",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, before)
			if files[tc.file] = strings.Replace(files[tc.file], tc.old, tc.new, 1); !strings.Contains(files[tc.file], tc.new) {
				t.Fatal("nothing was replaced")
			}
			moved, notes := move(t, files)
			if moved[controllerFile] != files[controllerFile] {
				t.Errorf("the controller was changed:\n%s", cmp.Diff(files[controllerFile], moved[controllerFile]))
			}
			if !strings.Contains(moved[mainFile], "mcmanager.New(") || !strings.Contains(moved[mainFile], "}).SetupWithManager(mgr)") {
				t.Errorf("main.go does not set the controller up in the hub:\n%s", moved[mainFile])
			}
			said := func(note string) bool {
				return strings.Contains(note, tc.note) && strings.HasSuffix(note, "GuestbookReconciler runs in the hub alone until it is moved")
			}
			if !slices.ContainsFunc(notes, said) {
				t.Errorf("it was not said that %q:\n%s", tc.note, strings.Join(notes, "\n"))
			}
		})
	}
}

// TestWhatABuilderIsToldIsMoved with one change of the controller before, and one after.
func TestWhatABuilderIsToldIsMoved(t *testing.T) {
	const old = "Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))"
	for name, tc := range map[string]struct{ before, after string }{
		"the handler of objects": {"Watches(x, &handler.EnqueueRequestForObject{})", "Watches(x, mchandler.EnqueueRequestForObject)"},
		"the handler of owners": {
			"Watches(x, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &webappv1.Guestbook{}, handler.OnlyControllerOwner()))",
			"Watches(x, mchandler.EnqueueRequestForOwner(&webappv1.Guestbook{}, handler.OnlyControllerOwner()))",
		},
		"options":              {"Owns(x, builder.OnlyMetadata, builder.MatchEveryOwner)", "Owns(x, mcbuilder.OnlyMetadata, mcbuilder.MatchEveryOwner)"},
		"a function elsewhere": {"Watches(x, handler.EnqueueRequestsFromMapFunc(ofSecret))", "Watches(x, mchandler.EnqueueRequestsFromMapFunc(ofSecret))"},
		"a function with the reconciler": {
			"Watches(x, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return r.ofSecret(nil, o) }))",
			"Watches(x, mchandler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {\n" +
				"\t\t\tr := newGuestbookReconciler(mcreconcile.ClusterFrom(ctx))\n\t\t\treturn r.ofSecret(nil, o)\n\t\t}))",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, before)
			files[controllerFile] = strings.Replace(files[controllerFile], old, tc.before, 1)
			moved, _ := move(t, files)
			if !strings.Contains(moved[controllerFile], tc.after) {
				t.Errorf("the controller lacks %q:\n%s", tc.after, cmp.Diff(files[controllerFile], moved[controllerFile]))
			}
		})
	}
}

func TestASuiteThatNeedsMoreThanAClientStays(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, note string }{
		"webhooks":         {"ErrorIfCRDPathMissing: true,", "WebhookInstallOptions: envtest.WebhookInstallOptions{},", "WebhookInstallOptions is set"},
		"a manager":        {"Expect(k8sClient).NotTo(BeNil())", "Expect(k8sClient).NotTo(BeNil())\n\tstart(cfg)", "more than a client is made"},
		"something else":   {"Expect(cfg).NotTo(BeNil())", "Expect(cfg).NotTo(BeNil())\n\tprepare()", "starts more than a control plane"},
		"no such variable": {"testEnv   *envtest.Environment", "other *envtest.Environment", "not as kubebuilder scaffolds it"},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, before)
			if files[suiteFile] = strings.Replace(files[suiteFile], tc.old, tc.new, 1); !strings.Contains(files[suiteFile], tc.new) {
				t.Fatal("nothing was replaced")
			}
			moved, notes := move(t, files)
			if diff := cmp.Diff(files[suiteFile], moved[suiteFile]); diff != "" {
				t.Errorf("the suite was changed (-before, +after):\n%s", diff)
			}
			if !slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, tc.note) }) {
				t.Errorf("it was not said that %q:\n%s", tc.note, strings.Join(notes, "\n"))
			}
		})
	}
}

// TestAnImportsNameThatIsTakenGetsAnother such as that of a variable kubeconfig.
func TestAnImportsNameThatIsTakenGetsAnother(t *testing.T) {
	files := filesOf(t, before)
	files[mainFile] = strings.Replace(files[mainFile], "var metricsAddr,", "kubeconfig := os.Args[0]\n\t_ = kubeconfig\n\tvar metricsAddr,", 1)
	moved, _ := move(t, files)
	for _, want := range []string{`fleetkubeconfig "` + module + `/providers/kubeconfig"`, `fleetkubeconfig.Provider{Namespace: "fleet"}`} {
		if !strings.Contains(moved[mainFile], want) {
			t.Errorf("main.go lacks %s:\n%s", want, moved[mainFile])
		}
	}
}

func TestWebhooksFitControllerRuntime(t *testing.T) {
	const file = "internal/webhook/v1/guestbook_webhook.go"
	const text = "package v1\n\nimport ctrl \"sigs.k8s.io/controller-runtime\"\n\nfunc SetupGuestbookWebhookWithManager(mgr ctrl.Manager) error {\n\treturn "
	files := filesOf(t, before)
	files[file] = text + "ctrl.NewWebhookManagedBy(mgr).For(&v1.Guestbook{}).\n\t\tWithValidator(&Validator{}).\n\t\tWithDefaulter(&Defaulter{}).\n\t\tComplete()\n}\n"
	want := text + "ctrl.NewWebhookManagedBy(mgr, &v1.Guestbook{}).\n\t\tWithCustomValidator(&Validator{}).\n\t\tWithCustomDefaulter(&Defaulter{}).\n\t\tComplete()\n}\n"
	moved, _ := move(t, files)
	if diff := cmp.Diff(want, moved[file]); diff != "" {
		t.Errorf("the webhook (-want, +got):\n%s", diff)
	}
	again, _ := move(t, moved)
	if diff := cmp.Diff(want, again[file]); diff != "" {
		t.Errorf("the webhook, moved twice (-want, +got):\n%s", diff)
	}
}

func TestANewProjectGetsTheVersionsThatFleetRuntimeNeeds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if mod.Go.Version != goVersion || mod.Module.Mod.Path != module {
		t.Errorf("fleet-runtime is %s with Go %s, not %s with %s", mod.Module.Mod.Path, mod.Go.Version, module, goVersion)
	}
	for _, r := range mod.Require {
		want := r.Mod.Version
		switch {
		case r.Mod.Path == ctrlPath:
			want = controllerRuntimeVersion
		case slices.Contains(kubernetesModules, r.Mod.Path):
			want = kubernetesVersion
		}
		if r.Mod.Version != want {
			t.Errorf("fleet-runtime needs %s, and projects get %s", r.Mod, want)
		}
	}
}

func TestTheImageBuildsWithAGoThatCan(t *testing.T) {
	for old, want := range map[string]string{
		"FROM golang:1.24 AS builder\n":           "FROM golang:1.26 AS builder\n",
		"FROM docker.io/golang:1.23.4 AS b\n":     "FROM docker.io/golang:1.26 AS b\n",
		"FROM golang:1.26.3 AS builder\n":         "FROM golang:1.26.3 AS builder\n",
		"FROM golang:1.26 AS builder\n":           "FROM golang:1.26 AS builder\n",
		"FROM golang:1.30-alpine AS builder\n":    "FROM golang:1.30-alpine AS builder\n",
		"FROM golang:latest\n# FROM golang:1.2\n": "FROM golang:latest\n# FROM golang:1.2\n",
	} {
		p := &Project{files: map[string]string{"Dockerfile": old}, changed: map[string]string{}}
		p.raiseGoOfDockerfile()
		if got, _ := p.read("Dockerfile"); got != want {
			t.Errorf("%q became %q, want %q", old, got, want)
		}
	}
}

// TestAControllerThatIsScaffoldedAgainIsSetUpOnce: kubebuilder create api --force registers it beside what was moved.
func TestAControllerThatIsScaffoldedAgainIsSetUpOnce(t *testing.T) {
	files := filesOf(t, before)
	want, _ := move(t, files)
	again := maps.Clone(want)
	again[controllerFile] = files[controllerFile]
	again[mainFile] = strings.Replace(want[mainFile], "\t// +kubebuilder:scaffold:builder", "\tif err := (&controller.GuestbookReconciler{\n"+
		"\t\tClient: mgr.GetClient(),\n\t\tScheme: mgr.GetScheme(),\n\t\tRecorder: mgr.GetEventRecorder(\"guestbook-controller\"),\n"+
		"\t}).SetupWithManager(mgr); err != nil {\n\t\tos.Exit(1)\n\t}\n\t// +kubebuilder:scaffold:builder", 1)
	if again[mainFile] == want[mainFile] {
		t.Fatal("nothing was replaced")
	}
	p, err := New(again)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AddAPI("Guestbook"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mainFile, controllerFile} {
		if got, _ := p.read(name); got != want[name] {
			t.Errorf("%s (-want, +got):\n%s", name, cmp.Diff(want[name], got))
		}
	}
	if notes := p.Notes(); len(notes) > 0 {
		t.Errorf("notes are %v", notes)
	}
}

// TestWhatGoesOnInTheHubIsTold: nothing of it fails to compile, so that nobody would notice.
func TestWhatGoesOnInTheHubIsTold(t *testing.T) {
	for name, tc := range map[string]struct{ file, old, new, note string }{
		"a reconciler in a variable": {
			mainFile, "}).SetupWithManager(mgr)", "}).more().SetupWithManager(mgr)",
			controllerFile + ":163: the controller that is built here runs in the hub alone until it is moved",
		},
		"a function of its own": {
			"internal/more/more.go", "", "package more\n\nimport ctrl \"sigs.k8s.io/controller-runtime\"\n\nfunc SetUp(mgr ctrl.Manager) error {\n\treturn ctrl.NewControllerManagedBy(mgr).Complete(nil)\n}\n",
			"internal/more/more.go:6: the controller that is built here runs in the hub alone until it is moved",
		},
		"a manager of another name": {
			mainFile, "mgr.AddHealthzCheck(", "m.GetFieldIndexer(", mainFile + ":83: this indexes the hub; GetFleetFieldIndexer indexes the members",
		},
		"resources in one line": {
			"config/default/kustomization.yaml", "- ../crd", "- '../crd'",
			"config/default/kustomization.yaml: take ../crd from the resources: it is in config/member now",
		},
		"a role in quotes": {
			"config/rbac/kustomization.yaml", "- role.yaml", "- 'role.yaml'",
			"config/rbac/kustomization.yaml: take role.yaml from the resources: it is in config/member now",
		},
		"an older library": {
			"go.mod", "go 1.26.0\n", "go 1.26.0\n\nreplace k8s.io/api => k8s.io/api v0.30.0\n",
			"go.mod:5: k8s.io/api is replaced; fleet-runtime needs v0.37.1 of it",
		},
		"a copy of the libraries": {"vendor/modules.txt", "", "# a copy", "vendor/modules.txt: run go mod vendor after go mod tidy"},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, before)
			if files[tc.file] = strings.Replace(files[tc.file], tc.old, tc.new, 1); !strings.Contains(files[tc.file], tc.new) {
				t.Fatal("nothing was replaced")
			}
			files[mainFile] = strings.ReplaceAll(files[mainFile], "mgr", "m")
			if _, notes := move(t, files); !slices.Contains(notes, tc.note) {
				t.Errorf("it was not said that %q:\n%s", tc.note, strings.Join(notes, "\n"))
			}
		})
	}
}

func TestOtherModulesInTheProjectStayAsTheyAre(t *testing.T) {
	files := filesOf(t, before)
	files["tools/go.mod"] = "module example.com/tools\n"
	files["tools/suite/suite_test.go"] = files[suiteFile]
	moved, _ := move(t, files)
	if moved["tools/suite/suite_test.go"] != files[suiteFile] {
		t.Error("the suite of another module was changed")
	}
}
