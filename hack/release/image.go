package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fleet-runtime/fleet-runtime/hack/release/container"
)

// image writes an archive of an OCI layout that has the program for each platform: podman, skopeo, ctr and crane load it or push
// it. There is nothing in the image but the program.
func (r release) image(p program, built map[platform]string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, on := range r.platforms {
		path, found := built[on]
		if !found {
			continue
		}
		image, err := r.imageOf(p, on, path)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: on.os, Architecture: on.arch}},
		})
	}
	folder, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add:        index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": p.image + ":" + r.version}},
	})
	if _, err := layout.Write(folder, outer); err != nil {
		return err
	}
	return create(filepath.Join(r.dist, fmt.Sprintf("%s_%s_image.tar", p.name, r.version)), func(w io.Writer) error {
		return r.tarFolder(w, folder)
	})
}

// imageOf is the image for one platform.
func (r release) imageOf(p program, on platform, path string) (v1.Image, error) {
	return container.Program{
		Path: path, At: container.Bin + p.name, Arch: on.arch, User: container.Nobody, Made: r.made,
		Labels: map[string]string{"org.opencontainers.image.version": r.version},
	}.Image()
}

// tarFolder writes the files of a folder in the order of their names.
func (r release) tarFolder(w io.Writer, folder string) error {
	archive := tar.NewWriter(w)
	var paths []string
	if err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			paths = append(paths, path)
		}
		return err
	}); err != nil {
		return err
	}
	slices.Sort(paths)
	for _, path := range paths {
		content, err := os.ReadFile(path) //nolint:gosec // made above
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, folder+string(filepath.Separator)))
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: r.made, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
