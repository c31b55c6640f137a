package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kubebuilder/v4/pkg/plugin/external"
)

// ask sends the plugin what is on its standard input, and returns the answer, and what is on standard error.
func ask(t *testing.T, request string) (res external.PluginResponse, log string) {
	t.Helper()
	var out, stderr bytes.Buffer
	if err := run(nil, strings.NewReader(request), &out, &stderr); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("the answer is no JSON: %v\n%s", err, out.String())
	}
	return res, stderr.String()
}

func request(t *testing.T, command string, args []string, files map[string]string) string {
	t.Helper()
	req, err := json.Marshal(external.PluginRequest{APIVersion: apiVersion, Command: command, Args: args, Universe: files})
	if err != nil {
		t.Fatal(err)
	}
	return string(req)
}

// scaffolded returns a small project as kubebuilder scaffolds it.
func scaffolded(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"PROJECT", "cmd/main.go", "go.mod", "internal/controller/guestbook_controller.go"} {
		content, err := os.ReadFile(filepath.Join("../../test/kubebuilder/before", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(content)
	}
	return files
}

func TestWhatCannotBeDoneIsAnAnswerWithoutFiles(t *testing.T) {
	replaced := []string{"--fleet-runtime-replace=/checkout"}
	without := func(name string) map[string]string {
		files := scaffolded(t)
		delete(files, name)
		return files
	}
	for name, tc := range map[string]struct{ request, err string }{
		"nothing":                   {"", "reading the request on standard input"},
		"broken JSON":               {`{"command": "edit", "universe": {`, "reading the request on standard input"},
		"JSON of another kind":      {`["edit"]`, "reading the request on standard input"},
		"an unknown command":        {request(t, "delete api", nil, nil), `kubebuilder's command "delete api" is not known`},
		"no command":                {`{}`, `kubebuilder's command "" is not known`},
		"an unknown protocol":       {`{"apiVersion": "v2", "command": "edit"}`, "protocol v2 is not known"},
		"an unknown provider":       {request(t, "init", []string{"--provider=kcp"}, nil), `there is no provider "kcp"; take one of capi, clusterprofile, contexts, kind, kubeconfig`},
		"no kind":                   {request(t, "create api", nil, scaffolded(t)), "--kind is missing"},
		"no version":                {request(t, "edit", nil, scaffolded(t)), "--fleet-runtime-version"},
		"a version that is none":    {request(t, "edit", []string{"--fleet-runtime-version=v1 // or so"}, scaffolded(t)), "is no version such as v0.1.0"},
		"a branch":                  {request(t, "edit", []string{"--fleet-runtime-version=main"}, scaffolded(t)), "is no version such as v0.1.0"},
		"a namespace that is none":  {request(t, "init", []string{`--fleet-namespace=a"}`}, scaffolded(t)), "is no name of a namespace"},
		"a folder that is none":     {request(t, "edit", []string{"--fleet-runtime-replace=checkout"}, scaffolded(t)), "begin it with ./, ../ or /"},
		"no files":                  {request(t, "edit", replaced, nil), "cmd/main.go is missing"},
		"no main.go":                {request(t, "edit", replaced, without("cmd/main.go")), "cmd/main.go is missing"},
		"a path out of the project": {request(t, "edit", replaced, map[string]string{"../../etc/passwd": "root"}), `the file "../../etc/passwd" is not in the project`},
		"an API of an unmoved one":  {request(t, "create api", []string{"--kind=Guestbook"}, scaffolded(t)), "run kubebuilder edit --plugins fleet.fleet-runtime.dev/v1 first"},
		"a webhook of an unmoved":   {request(t, "create webhook", []string{"--kind=Guestbook"}, scaffolded(t)), "run kubebuilder edit"},
	} {
		t.Run(name, func(t *testing.T) {
			res, _ := ask(t, tc.request)
			if !res.Error || len(res.Universe) > 0 || !strings.Contains(strings.Join(res.ErrorMsgs, "\n"), tc.err) {
				t.Errorf("the answer is %+v, want no files and the error %q", res, tc.err)
			}
		})
	}
}

// TestOnlyWhatChangesIsSentBack: kubebuilder's JSON does not keep the bytes of pictures and programs.
func TestOnlyWhatChangesIsSentBack(t *testing.T) {
	files := scaffolded(t)
	files["bin/manager"] = strings.Repeat("\ufffd\x00", 1<<21) // 8 MiB
	files["docs/logo.png"] = "\x89PNG\ufffd"
	files[".git/index"] = "DIRC"
	res, log := ask(t, request(t, "edit", []string{"--fleet-runtime-version", "v0.1.0", "--domain", "example.com", "--skip-go-version-check"}, files))
	var changed []string
	for name := range res.Universe {
		if !strings.HasPrefix(name, "config/") {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	if diff := cmp.Diff([]string{"cmd/main.go", "go.mod", "internal/controller/guestbook_controller.go"}, changed); diff != "" || res.Error {
		t.Errorf("what is sent back (-want, +got):\n%s%q", diff, res.ErrorMsgs)
	}
	if !strings.Contains(res.Universe["go.mod"], "github.com/fleet-runtime/fleet-runtime v0.1.0\n") {
		t.Errorf("go.mod does not require the version that was asked for:\n%s", res.Universe["go.mod"])
	}
	for _, want := range []string{"changed: cmd/main.go\n", "Left to you:\n", "config/default/kustomization.yaml: it is missing"} {
		if !strings.Contains(log, want) {
			t.Errorf("standard error lacks %q:\n%s", want, log)
		}
	}
}

func TestFlagsAreThoseOfTheSubcommand(t *testing.T) {
	for subcommand, want := range map[string][]string{
		"--init":    {"provider", "fleet-namespace", "fleet-runtime-version", "fleet-runtime-replace"},
		"--edit":    {"provider", "fleet-namespace", "fleet-runtime-version", "fleet-runtime-replace"},
		"--api":     nil,
		"--webhook": nil,
	} {
		res, _ := ask(t, request(t, "flags", []string{subcommand}, nil))
		names := map[string]bool{}
		for _, flag := range res.Flags {
			names[flag.Name] = true
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(names))); diff != "" || res.Error {
			t.Errorf("the flags of %s (-want, +got):\n%s%q", subcommand, diff, res.ErrorMsgs)
		}
		res, _ = ask(t, request(t, "metadata", []string{subcommand}, nil))
		if res.Metadata.Description == "" || res.Error {
			t.Errorf("%s has no description: %q", subcommand, res.ErrorMsgs)
		}
	}
}

func TestAPersonIsToldHowToInstallThePlugin(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"help"}, nil, &out, io.Discard); err != nil || !strings.Contains(out.String(), "kubebuilder-fleet install") {
		t.Errorf("help printed %q, and returned %v", out.String(), err)
	}
	if err := run([]string{"instal"}, nil, &out, io.Discard); err == nil || !strings.Contains(err.Error(), "kubebuilder-fleet install") {
		t.Errorf("a mistyped command returned %v", err)
	}
}
