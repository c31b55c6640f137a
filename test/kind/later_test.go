package kind

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// later is what is needed after the operator, and is made while that is tested, which is waiting for the most part.
type later struct {
	making  errgroup.Group
	folder  string // of archives and programs
	project *project
}

// begin begins to make it. The hub gets its images then, too: no test creates that anew.
func (l *later) begin(t *testing.T, c *clusters, folder string) {
	t.Helper()
	l.folder = folder
	var err error
	l.project, err = newProject(t, c)
	must(t, err)
	t.Cleanup(func() { _ = l.making.Wait() }) // testLater tells of an error
	l.making.Go(func() error {
		begun := time.Now()
		err := l.make(t.Context(), c)
		t.Logf("what is needed later was made in %s", time.Since(begun).Round(time.Second))
		return err
	})
}

// program is the file of a program that runs beside the clusters.
func (l *later) program(name string) string { return filepath.Join(l.folder, name) }

func (l *later) make(ctx context.Context, c *clusters) error {
	for _, program := range []string{"cmd/mcctl", "examples/quickstart"} {
		if _, err := outside(ctx, filepath.Join(root, program), nil, "go", "build", "-o", l.program(filepath.Base(program)), "."); err != nil {
			return err
		}
	}
	images := slices.Concat(ofExamples, ofAll)
	if err := makeImages(ctx, l.folder, images); err != nil {
		return err
	}
	if err := c.load(hub, l.folder, images); err != nil {
		return err
	}
	return l.project.scaffold(ctx)
}

// testLater waits for it, and gives the members their images.
func (c *clusters) testLater(t *testing.T) {
	must(t, c.later.making.Wait())
	for _, name := range []string{east, west} {
		must(t, c.load(name, c.later.folder, ofAll))
	}
}
