package project

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// What fleet-runtime needs, as its own go.mod says.
const (
	goVersion                = "1.26.0"
	controllerRuntimeVersion = "v0.25.2"
	kubernetesVersion        = "v0.37.1"
)

// kubernetesModules have one version together.
var kubernetesModules = []string{
	"k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go", "k8s.io/component-base",
}

// noVersion is what go.mod says of a module that is replaced.
const noVersion = "v0.0.0-00010101000000-000000000000"

// requireFleetRuntime makes go.mod require fleet-runtime, and what that needs.
func (p *Project) requireFleetRuntime(o Options) error {
	text, _ := p.read("go.mod")
	mod, err := modfile.Parse("go.mod", []byte(text), nil)
	if err != nil {
		return fmt.Errorf("%w; %s", err, howToMove)
	}
	required := map[string]string{}
	for _, r := range mod.Require {
		required[r.Mod.Path] = r.Mod.Version
	}
	version, err := versionFor(required[module], o)
	if err != nil {
		return err
	}
	if mod.Go == nil || semver.Compare("v"+mod.Go.Version, "v"+goVersion) < 0 {
		err = errors.Join(err, mod.AddGoStmt(goVersion))
		mod.DropToolchainStmt()
	}
	set := map[string]string{module: version}
	raise := func(module, least string) {
		if has := required[module]; has != "" && semver.Compare(has, least) < 0 {
			set[module] = least
		}
	}
	raise(ctrlPath, controllerRuntimeVersion)
	for _, module := range kubernetesModules {
		raise(module, kubernetesVersion)
	}
	require(mod, set)
	if o.Replace != "" {
		err = errors.Join(err, mod.AddReplace(module, "", o.Replace, ""))
	}
	if err != nil {
		return err
	}
	p.noteReplaced(mod)
	mod.SortBlocks()
	out, err := mod.Format()
	if err == nil && string(out) != text {
		p.write("go.mod", string(out))
	}
	return err
}

// noteReplaced notes modules whose versions go.mod does not decide on by what it requires.
func (p *Project) noteReplaced(mod *modfile.File) {
	for _, r := range mod.Replace {
		switch {
		case r.Old.Path == ctrlPath:
			p.notef("go.mod", r.Syntax.Start.Line, "%s is replaced; fleet-runtime needs %s of it", r.Old.Path, controllerRuntimeVersion)
		case slices.Contains(kubernetesModules, r.Old.Path):
			p.notef("go.mod", r.Syntax.Start.Line, "%s is replaced; fleet-runtime needs %s of it", r.Old.Path, kubernetesVersion)
		}
	}
}

// require sets the versions of modules, of which those that are new are direct ones.
func require(mod *modfile.File, versions map[string]string) {
	all := make([]*modfile.Require, 0, len(mod.Require)+len(versions))
	for _, r := range mod.Require {
		if version, ok := versions[r.Mod.Path]; ok {
			r.Mod.Version = version
			delete(versions, r.Mod.Path)
		}
		all = append(all, r)
	}
	for path, version := range versions {
		all = append(all, &modfile.Require{Mod: gomodule.Version{Path: path, Version: version}})
	}
	mod.SetRequireSeparateIndirect(all)
}

// versionFor returns the version of fleet-runtime that go.mod shall have.
func versionFor(has string, o Options) (string, error) {
	switch {
	case o.Replace != "" && !modfile.IsDirectoryPath(o.Replace):
		return "", fmt.Errorf("--fleet-runtime-replace %s is no path of a folder to go.mod: begin it with ./, ../ or /", o.Replace)
	case o.Version != "" && gomodule.Check(module, o.Version) != nil:
		return "", fmt.Errorf("--fleet-runtime-version %q is no version such as v0.1.0", o.Version)
	case o.Version != "":
		return o.Version, nil
	case o.Replace != "":
		return noVersion, nil
	case has != "":
		return has, nil
	default:
		return "", errors.New("this plugin was built in a checkout and has no version: say which one of fleet-runtime the project is to have, " +
			"by --fleet-runtime-version, or by --fleet-runtime-replace and the folder of a checkout")
	}
}

// raiseGoOfDockerfile makes the image of the builder one whose Go can build the project.
func (p *Project) raiseGoOfDockerfile() {
	const name, image = "Dockerfile", "golang:"
	text, ok := p.read(name)
	if !ok {
		return
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		before, after, found := strings.Cut(line, image)
		if !found || !strings.HasPrefix(line, "FROM ") {
			continue
		}
		version := after[:len(after)-len(strings.TrimLeft(after, "0123456789."))]
		if version != "" && semver.Compare("v"+version, "v"+goVersion) < 0 && semver.MajorMinor("v"+version) != semver.MajorMinor("v"+goVersion) {
			lines[i] = before + image + strings.TrimPrefix(semver.MajorMinor("v"+goVersion), "v") + after[len(version):]
		}
	}
	p.write(name, strings.Join(lines, ""))
}
