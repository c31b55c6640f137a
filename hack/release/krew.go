package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// plugin is what krew, the package manager for plugins of kubectl, tells of a program.
type plugin struct {
	short, description string
}

// The manifest of a plugin: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
type (
	krewPlugin struct {
		APIVersion string       `json:"apiVersion"`
		Kind       string       `json:"kind"`
		Metadata   krewMetadata `json:"metadata"`
		Spec       krewSpec     `json:"spec"`
	}
	krewMetadata struct {
		Name string `json:"name"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector krewSelector `json:"selector"`
		URI      string       `json:"uri"`
		SHA256   string       `json:"sha256"`
		Bin      string       `json:"bin"`
	}
	krewSelector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
)

// krew writes the manifest of a program that is packed already. krew wants the file to be called as the plugin.
func (r release) krew(p program) error {
	manifest := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{p.name},
		Spec: krewSpec{
			Version: r.version, Homepage: "https://" + of, ShortDescription: p.plugin.short, Description: p.plugin.description,
		},
	}
	for _, on := range r.platforms {
		if !p.isFor(on.os) {
			continue
		}
		archive := r.archive(p, on)
		content, err := os.ReadFile(archive) //nolint:gosec // made before
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": on.os, "arch": on.arch}},
			URI:      "https://" + of + "/releases/download/" + r.version + "/" + filepath.Base(archive),
			SHA256:   fmt.Sprintf("%x", sha256.Sum256(content)),
			Bin:      executable(p.name, on),
		})
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return create(filepath.Join(r.dist, p.name+".yaml"), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
