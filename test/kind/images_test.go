package kind

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// image is a program that clusters run.
type image struct {
	folder, tag string
	version     string // which it says of itself
	at          string // its path, if that is another than usual
}

var (
	ofOperator = []image{
		{folder: "examples/operator", tag: "fleet.example.com/operator:" + before},
		{folder: "examples/operator", tag: "fleet.example.com/operator:" + next, version: next},
	}
	ofExamples = []image{
		{folder: "examples/deploymentcopy", tag: "fleet.example.com/deploymentcopy:dev"},
		{folder: "examples/foo", tag: "fleet.example.com/foo:dev"},
		{folder: "examples/jobs", tag: "fleet.example.com/jobs:dev"},
		{folder: "examples/images", tag: "fleet.example.com/images:dev"},
		{folder: moved + "/cmd", tag: "fleet.example.com/moved:dev", at: "/manager"},
		{folder: "operators/replicator", tag: "fleet.example.com/replicator:dev"},
	}
	// ofAll are those that members run too.
	ofAll = []image{
		{folder: "test/kind/standin", tag: "registry.k8s.io/guestbook:v3"}, // Deployments of the moved project have it
		{folder: "test/kind/standin", tag: "docker.io/library/nginx:1.29"}, // that of Foos, and of the replicator's sample
		{folder: "test/kind/standin", tag: "fleet.example.com/standin:dev"},
	}
)

// archive is the file of an image in a folder.
func (i *image) archive(folder string) string {
	return filepath.Join(folder, strings.NewReplacer("/", "-", ":", "-").Replace(i.tag)+".tar")
}

// makeImages puts programs into images, one after the other: the go command uses all cores for each.
func makeImages(ctx context.Context, folder string, images []image) error {
	repository, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	for _, i := range images {
		if _, err := outside(ctx, repository, nil, "go", "run", "-C", "hack/release", "./image",
			"--tag", i.tag, "--version", i.version, "--at", i.at, "--output", i.archive(folder), filepath.Join(repository, i.folder)); err != nil {
			return fmt.Errorf("making the image of %s: %w", i.folder, err)
		}
	}
	return nil
}
