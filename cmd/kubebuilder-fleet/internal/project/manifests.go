package project

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/afero"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kubebuilder/v4/pkg/machinery"
)

//go:embed templates
var templates embed.FS

const (
	defaultKustomization = "config/default/kustomization.yaml"
	rbacKustomization    = "config/rbac/kustomization.yaml"
	crdKustomization     = "config/crd/kustomization.yaml"
	memberKustomization  = "config/member/kustomization.yaml"
	hubKustomization     = "config/hub/kustomization.yaml"
	crdFolder            = "- ../crd"
	// movedComment is all that is in a file that has moved: a plugin cannot delete files.
	movedComment = "# This file is %s now. Delete this one.\n"
)

// ofMembers are the files of config/rbac that move to config/member.
var ofMembers = []string{"role.yaml", "role_binding.yaml"}

// file is a file that kubebuilder's machinery makes of a template.
type file struct {
	machinery.TemplateMixin
	machinery.BoilerplateMixin
	template string // its name
	Values
}

// Values are what templates can say.
type Values struct {
	Namespace, Prefix   string // of config/default
	Fleet, Rules, Reads string // of the provider
	Package, Alias, API string // of a kind's test
	Kind                string
	Namespaced          bool
}

var _ machinery.Template = (*file)(nil)

// SetTemplateDefaults implements machinery.Template. What exists stays as it is.
func (f *file) SetTemplateDefaults() error {
	body, err := templates.ReadFile("templates/" + f.template)
	f.TemplateBody = string(body)
	f.IfExistsAction = machinery.SkipFile
	return err
}

// crds is the line of the CRDs, which machinery inserts at the marker of config/member.
type crds struct{ machinery.InserterMixin }

var _ machinery.Inserter = (*crds)(nil)

func (crds) marker() machinery.Marker { return machinery.NewMarkerFor(memberKustomization, "member") }

// GetMarkers implements machinery.Inserter.
func (c crds) GetMarkers() []machinery.Marker { return []machinery.Marker{c.marker()} }

// GetCodeFragments implements machinery.Inserter.
func (c crds) GetCodeFragments() machinery.CodeFragmentsMap {
	return machinery.CodeFragmentsMap{c.marker(): {crdFolder + "\n"}}
}

// scaffold lets kubebuilder's machinery make or change files.
func (p *Project) scaffold(builders ...machinery.Builder) error {
	fs := machinery.Filesystem{FS: afero.NewMemMapFs()}
	for _, b := range builders {
		if text, ok := p.read(b.GetPath()); ok {
			if err := afero.WriteFile(fs.FS, b.GetPath(), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	boilerplate, _ := p.read("hack/boilerplate.go.txt")
	if err := machinery.NewScaffold(fs, machinery.WithBoilerplate(strings.TrimSpace(boilerplate))).Execute(builders...); err != nil {
		return err
	}
	for _, b := range builders {
		text, err := afero.ReadFile(fs.FS, b.GetPath())
		if err != nil {
			return err
		}
		if before, _ := p.read(b.GetPath()); before != string(text) {
			p.write(b.GetPath(), string(text))
		}
	}
	return nil
}

// moveManifests splits the manifests into those for the hub and those for members.
func (p *Project) moveManifests(o Options, moved bool) error {
	var kustomization struct {
		Namespace  string `yaml:"namespace"`
		NamePrefix string `yaml:"namePrefix"`
	}
	text, ok := p.read(defaultKustomization)
	if !ok {
		p.notef(defaultKustomization, 0, "it is missing, so no manifests for the hub and for members were made")
		return nil
	}
	if err := yaml.Unmarshal([]byte(text), &kustomization); err != nil {
		return fmt.Errorf("%s: %w; %s", defaultKustomization, err, howToMove)
	}
	values := Values{
		Namespace: kustomization.Namespace, Prefix: kustomization.NamePrefix,
		Fleet: o.Namespace, Rules: o.Provider.role(), Reads: o.Provider.reads,
	}
	if _, exists := p.read(hubKustomization); !exists && moved {
		if err := p.scaffoldHub(values); err != nil {
			return err
		}
	}
	if err := p.scaffoldMembers(values); err != nil {
		return err
	}
	for _, name := range ofMembers {
		p.dropLine(rbacKustomization, "- "+name, "")
		p.noteListed(rbacKustomization, name)
	}
	return p.addCRDs()
}

func (p *Project) scaffoldHub(values Values) error {
	builders := []machinery.Builder{template(hubKustomization, "hub_kustomization.yaml", values)}
	if values.Rules != "" {
		builders = append(builders, template("config/hub/fleet.yaml", "hub_fleet.yaml", values))
	}
	return p.scaffold(builders...)
}

func (p *Project) scaffoldMembers(values Values) error {
	if _, exists := p.read(memberKustomization); exists {
		return nil
	}
	err := p.scaffold(
		template(memberKustomization, "member_kustomization.yaml", values),
		template("config/member/namespace.yaml", "member_namespace.yaml", values),
		template("config/member/identity.yaml", "member_identity.yaml", values),
	)
	if text, ok := p.read("config/rbac/service_account.yaml"); ok {
		p.write("config/member/service_account.yaml", text) // the hub has one too
	}
	for _, name := range ofMembers {
		if text, ok := p.read("config/rbac/" + name); ok {
			p.write("config/member/"+name, text)
			p.write("config/rbac/"+name, fmt.Sprintf(movedComment, "config/member/"+name))
		} else {
			p.notef("config/member/"+name, 0, "it is to be made, since there is no config/rbac/%s", name)
		}
	}
	return err
}

func template(path, name string, values Values) *file {
	f := &file{template: name, Values: values}
	f.Path = path
	return f
}

// addCRDs moves the CRDs from the hub to the members, as soon as there are any.
func (p *Project) addCRDs() error {
	if _, exists := p.read(crdKustomization); !exists {
		return nil
	}
	// kubebuilder looks for this line each time that an API is created, so it stays as a comment.
	p.dropLine(defaultKustomization, crdFolder, "# CRDs are in config/member: - ../crd")
	p.noteListed(defaultKustomization, "../crd")
	text, exists := p.read(memberKustomization)
	switch {
	case !exists, hasLine(text, crdFolder):
		return nil
	case !strings.Contains(text, crds{}.marker().String()):
		p.notef(memberKustomization, 0, "the resources are to have %s", strings.TrimPrefix(crdFolder, "- "))
		return nil
	}
	return p.scaffold(&crds{machinery.InserterMixin{PathMixin: machinery.PathMixin{Path: memberKustomization}}})
}

func hasLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}

// dropLine puts another line in the place of one, or removes it.
func (p *Project) dropLine(name, line, other string) {
	text, ok := p.read(name)
	if !ok || !hasLine(text, line) {
		return
	}
	var out strings.Builder
	for l := range strings.Lines(text) {
		switch {
		case strings.TrimSpace(l) != line:
			out.WriteString(l)
		case other != "":
			out.WriteString(other + "\n")
		}
	}
	p.write(name, out.String())
}

// noteListed notes a resource that a kustomization has in another form than a line of its own.
func (p *Project) noteListed(name, resource string) {
	var kustomization struct {
		Resources []string `yaml:"resources"`
	}
	text, _ := p.read(name)
	if err := yaml.Unmarshal([]byte(text), &kustomization); err != nil || slices.Contains(kustomization.Resources, resource) {
		p.notef(name, 0, "take %s from the resources: it is in config/member now", resource)
	}
}
