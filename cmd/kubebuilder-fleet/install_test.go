package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/fleet-runtime/fleet-runtime/cmd/kubebuilder-fleet"

// TestTheInstalledPluginKnowsItsVersion installs it as users do, by go run and the version of a module proxy: go refuses modules that
// replace others then. The version is what projects get, and the plugin lands where kubebuilder looks.
func TestTheInstalledPluginKnowsItsVersion(t *testing.T) {
	const version = "v0.1.0"
	plugins := filepath.Join(t.TempDir(), "plugins")
	env := append(os.Environ(),
		"GOPROXY=file://"+proxyOf(t, version)+",file://"+filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")+","+goEnv(t, "GOPROXY"),
		"GONOSUMDB=*", "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "EXTERNAL_PLUGINS_PATH="+plugins)
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env, cmd.Stderr = t.TempDir(), env, t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		return strings.TrimSpace(string(out))
	}
	for range 2 { // the second replaces the first
		if path, want := run("go", "run", modulePath+"@"+version, "install"), filepath.Join(plugins, pluginName, "v1", pluginName); path != want {
			t.Errorf("the plugin was installed as %s, want %s", path, want)
		}
	}
	plugin := filepath.Join(plugins, pluginName, "v1", pluginName)
	if got := run(plugin, "version"); got != version {
		t.Errorf("the installed plugin has version %s, want %s", got, version)
	}
	cmd := exec.CommandContext(t.Context(), plugin)
	cmd.Stdin = strings.NewReader(request(t, "flags", []string{"--init"}, nil))
	if flags, err := cmd.Output(); err != nil || !strings.Contains(string(flags), `"Default":"`+version+`"`) {
		t.Errorf("%s is not the default of a flag (%v):\n%s", version, err, flags)
	}
	entries, err := os.ReadDir(filepath.Join(plugins, pluginName))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the plugin there are %v (%v)", entries, err)
	}
}

// proxyOf returns a folder with this module as a module proxy has it.
func proxyOf(t *testing.T, version string) string {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"list": version + "\n", version + ".info": fmt.Sprintf(`{"Version": %q}`, version), version + ".mod": string(mod),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromDir(file, module.Version{Path: modulePath, Version: version}, "."); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return root
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestThePluginsFolderIsKubebuilders by the variables that kubebuilder reads.
func TestThePluginsFolderIsKubebuilders(t *testing.T) {
	t.Setenv("EXTERNAL_PLUGINS_PATH", "/given")
	t.Setenv("XDG_CONFIG_HOME", "/config")
	if root, err := pluginsRoot("linux"); root != "/given" || err != nil {
		t.Errorf("with EXTERNAL_PLUGINS_PATH the folder is %s (%v)", root, err)
	}
	t.Setenv("EXTERNAL_PLUGINS_PATH", "")
	if root, err := pluginsRoot("linux"); root != "/config/kubebuilder/plugins" || err != nil {
		t.Errorf("with XDG_CONFIG_HOME the folder is %s (%v)", root, err)
	}
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "/home/user")
	if root, err := pluginsRoot("windows"); err == nil {
		t.Errorf("on windows the folder is %s, and kubebuilder does not run there", root)
	}
	if root, err := pluginsRoot("linux"); !strings.HasPrefix(root, "/home/user/") || err != nil {
		t.Errorf("with HOME alone the folder is %s (%v)", root, err)
	}
}
