package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// image is what an archive is made of.
type image struct {
	tags       []string
	user, arch string
	program    string // an executable file
	files      string // a folder, or ""
}

const bin = "usr/local/bin"

// write writes the archive in one step.
func (i image) write(output string) error {
	var layer bytes.Buffer
	if err := i.layer(&layer); err != nil {
		return fmt.Errorf("packing %s: %w", i.program, err)
	}
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": i.arch, "os": "linux",
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"Entrypoint": []string{"/" + bin + "/" + filepath.Base(i.program)},
			"User":       i.user,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": i.tags, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	return writeWhole(output, func(w io.Writer) error {
		archive := tar.NewWriter(w)
		for _, f := range []struct {
			name    string
			content []byte
		}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
			if err := add(archive, tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content))}, bytes.NewReader(f.content)); err != nil {
				return err
			}
		}
		return archive.Close()
	})
}

// layer packs the program, and the other files. Nothing is in it that differs from one machine to the next.
func (i image) layer(w io.Writer) error {
	layer := tar.NewWriter(w)
	if err := add(layer, tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
		return err
	}
	if i.files != "" {
		if err := addFolder(layer, i.files); err != nil {
			return err
		}
	}
	if err := addFile(layer, i.program, bin+"/"+filepath.Base(i.program)); err != nil {
		return err
	}
	return layer.Close()
}

func addFolder(layer *tar.Writer, folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return add(layer, tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil)
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return add(layer, tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
		default:
			return addFile(layer, path, name)
		}
	})
}

func addFile(layer *tar.Writer, path, name string) error {
	file, err := os.Open(path) //nolint:gosec // what the user asks for
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return add(layer, tar.Header{Name: filepath.ToSlash(name), Mode: 0o755, Size: info.Size()}, file)
}

func add(archive *tar.Writer, header tar.Header, content io.Reader) error {
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	_, err := io.Copy(archive, content)
	return err
}

// writeWhole writes a file that is there when it is whole, and not before.
func writeWhole(path string, write func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // it is not there any more if all went well
	err = write(temporary)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(temporary.Name(), path)
}
