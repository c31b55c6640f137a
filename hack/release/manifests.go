package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// manifests writes those of the program into one file that kubectl applies, with the image of this release.
func (r release) manifests(p program) error {
	paths, err := filepath.Glob(filepath.Join(r.root, p.manifests, "*.yaml"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("there are no manifests in %s", p.manifests)
	}
	slices.Sort(paths)
	return create(filepath.Join(r.dist, p.name+"_"+r.version+"_install.yaml"), func(w io.Writer) error {
		for _, path := range paths {
			content, err := os.ReadFile(path) //nolint:gosec // of the repository
			if err != nil {
				return err
			}
			content = bytes.ReplaceAll(content, []byte(reference(p, "latest")), []byte(reference(p, r.version)))
			if _, err := fmt.Fprintf(w, "---\n# %s\n%s\n", filepath.Base(path), bytes.TrimSpace(content)); err != nil {
				return err
			}
		}
		return nil
	})
}
