package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// manifests writes those of the program into files that kubectl applies, with the image of this release.
func (r release) manifests(p program) error {
	for name, parts := range p.manifests {
		err := create(filepath.Join(r.dist, p.name+"_"+r.version+"_"+name), func(w io.Writer) error {
			for _, part := range parts {
				content, err := os.ReadFile(filepath.Join(r.root, p.folder, part)) //nolint:gosec // of the repository
				if err != nil {
					return err
				}
				content = bytes.ReplaceAll(content, []byte(p.image+":dev"), []byte(p.image+":"+r.version))
				if _, err := fmt.Fprintf(w, "---\n# %s\n%s\n", filepath.Base(part), bytes.TrimSpace(content)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
