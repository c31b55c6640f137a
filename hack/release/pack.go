package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// pack puts a program and the licence into an archive of the platform's usual form.
func (r release) pack(p program, on platform, path string) error {
	files := []string{path, filepath.Join(r.root, "LICENSE")}
	if on.os == windows {
		return create(r.archive(p, on), func(w io.Writer) error { return r.zip(w, files) })
	}
	return create(r.archive(p, on), func(w io.Writer) error {
		compressed := gzip.NewWriter(w)
		return cmp.Or(r.tar(compressed, files), compressed.Close())
	})
}

// tar writes files of no owner, which are as old as the commit.
func (r release) tar(w io.Writer, paths []string) error {
	archive := tar.NewWriter(w)
	for _, path := range paths {
		content, err := os.ReadFile(path) //nolint:gosec // built above, or the licence
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.Base(path), Mode: mode(path), Size: int64(len(content)), ModTime: r.made, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (r release) zip(w io.Writer, paths []string) error {
	archive := zip.NewWriter(w)
	for _, path := range paths {
		content, err := os.ReadFile(path) //nolint:gosec // built above, or the licence
		if err != nil {
			return err
		}
		file, err := archive.CreateHeader(&zip.FileHeader{Name: filepath.Base(path), Method: zip.Deflate, Modified: r.made})
		if err != nil {
			return err
		}
		if _, err := file.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// mode is that of an executable file, or of a text.
func mode(path string) int64 {
	if filepath.Base(path) == "LICENSE" {
		return 0o644
	}
	return 0o755
}

// writeChecksums writes the SHA-256 of each file in the folder, as sha256sum -c reads them.
func writeChecksums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return create(filepath.Join(folder, "checksums.txt"), func(w io.Writer) error {
		for _, entry := range entries {
			content, err := os.ReadFile(filepath.Join(folder, entry.Name())) //nolint:gosec // made above
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(content), entry.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}

// create writes a new file, which everybody may read.
func create(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // in the folder that is made
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
