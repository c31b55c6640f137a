// Command pictures draws the pictures of the documentation, for light pages and for dark ones: each docs/pictures/*.txt becomes
// an SVG beside it, and tables of docs/performance.md become plots. It is run by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . ../../docs

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pictures docs")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// run draws all pictures of the folder of the documentation.
func run(docs string) error {
	folder := filepath.Join(docs, "pictures")
	if err := drawEach(folder, ".txt", drawText); err != nil {
		return err
	}
	if err := drawEach(folder, ".cast", drawCast); err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md")) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	for _, c := range charts {
		picture, err := c.draw(string(page))
		if err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
		if err := write(filepath.Join(folder, c.file), picture); err != nil {
			return err
		}
	}
	return nil
}

// drawEach draws each file of the folder whose name ends so, as an SVG beside it.
func drawEach(folder, suffix string, draw func([]byte) ([]byte, error)) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		source, err := os.ReadFile(path) //nolint:gosec // the caller's own
		if err != nil {
			return err
		}
		picture, err := draw(source)
		if err != nil {
			return fmt.Errorf("draw %s: %w", path, err)
		}
		if err := write(strings.TrimSuffix(path, suffix)+".svg", picture); err != nil {
			return err
		}
	}
	return nil
}

// write leaves a file that everybody may read.
func write(path string, picture []byte) error {
	return os.WriteFile(path, picture, 0o644) //nolint:gosec // as all files of the repository
}
