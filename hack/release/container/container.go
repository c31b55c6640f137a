// Package container makes container images of one static program each, without an engine and without a registry.
package container

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Nobody runs programs: Kubernetes' policy for restricted namespaces asks for a number that is not root's.
const Nobody = "65532:65532"

// Program is what an image is made of. The same program makes the same image.
type Program struct {
	Path   string            // of the executable file
	At     string            // where it is in the image. Folder Bin is in PATH
	Files  string            // a folder of files that are in the image too, or ""
	Arch   string            // as Go names it
	User   string            // that the program runs as
	Made   time.Time         // when all of it was made
	Labels map[string]string // of the image
}

// Bin is the folder of programs.
const Bin = "/usr/local/bin/"

// Image returns the image: the program, a folder for temporary files, and the other files. The program's file must stay for as
// long as the image is used.
func (p Program) Image() (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		var content bytes.Buffer
		if err := p.pack(&content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", p.Path, err)
		}
		return io.NopCloser(&content), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: p.Made}}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.Arch, v1.Time{Time: p.Made}
	config.Config = v1.Config{
		Entrypoint: []string{p.At},
		Env:        []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		User:       p.User,
		Labels:     p.Labels,
	}
	return mutate.ConfigFile(image, config)
}

// pack writes the layer.
func (p Program) pack(w io.Writer) error {
	l := layer{archive: tar.NewWriter(w), made: p.Made}
	if err := l.add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
		return err
	}
	if p.Files != "" {
		if err := l.addFolder(p.Files); err != nil {
			return err
		}
	}
	if err := l.addFile(p.Path, strings.TrimPrefix(p.At, "/")); err != nil {
		return err
	}
	return l.archive.Close()
}

// layer is what files are written to. They have no owner, and are all of the same age.
type layer struct {
	archive *tar.Writer
	made    time.Time
}

func (l layer) addFolder(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return l.add(tar.Header{Typeflag: tar.TypeDir, Name: filepath.ToSlash(name) + "/", Mode: 0o755}, nil)
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: filepath.ToSlash(name), Linkname: target, Mode: 0o777}, nil)
		default:
			return l.addFile(path, filepath.ToSlash(name))
		}
	})
}

func (l layer) addFile(path, name string) error {
	file, err := os.Open(path) //nolint:gosec // what the caller asks for
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return l.add(tar.Header{Name: name, Mode: 0o755, Size: info.Size()}, file)
}

func (l layer) add(header tar.Header, content io.Reader) error {
	header.ModTime, header.Format = l.made, tar.FormatUSTAR
	if err := l.archive.WriteHeader(&header); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	_, err := io.Copy(l.archive, content)
	return err
}
