package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// file is a kubeconfig file.
type file struct {
	path    string // absolute
	content []byte // as it was read last
	// config is what could be read last. Its entries say the file, and the paths in them are absolute. They must not be
	// changed.
	config *clientcmdapi.Config
	err    error // why the file cannot be used now, although it exists
}

// read reads the file again, and reports whether it is still a file of the fleet: one that does not exist is not, unless
// it is away. A file that cannot be used keeps its config.
func (f *file) read(away error) bool {
	err := onlyFile(f.path)
	var content []byte
	if err == nil {
		content, err = os.ReadFile(f.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && (away == nil || f.config == nil):
		return false
	case err != nil:
		f.content, f.err = nil, err
	case f.content == nil || !bytes.Equal(f.content, content):
		f.content = content
		config, err := parse(f.path, content)
		if err == nil {
			f.config = config
		}
		f.err = err
	}
	return true
}

// onlyFile returns an error for what exists and must not be read: what is no file, such as a pipe or a device, which may
// take for ever, and what is too large.
func onlyFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil //nolint:nilerr // see above
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("it must be a regular file, or a symbolic link to one")}
	case info.Size() > kubeconfig.MaxSize:
		return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than the %d bytes that are read", kubeconfig.MaxSize)}
	}
	return nil
}

// parse returns what the file says. Its errors quote nothing of the content.
func parse(path string, content []byte) (*clientcmdapi.Config, error) {
	config, err := kubeconfig.Load(content) // an empty file is one that is being written, and an error
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveConfigPaths(config, filepath.Dir(path)); err != nil {
		return nil, err
	}
	for _, c := range config.Contexts {
		c.LocationOfOrigin = path
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	return config, nil
}

// merge returns what kubectl makes of several files: the first that has an entry of a name counts. See
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
func merge(files []*file) *clientcmdapi.Config {
	merged := clientcmdapi.NewConfig()
	for _, f := range files {
		if f.config != nil {
			addMissing(merged.Contexts, f.config.Contexts)
			addMissing(merged.Clusters, f.config.Clusters)
			addMissing(merged.AuthInfos, f.config.AuthInfos)
		}
	}
	return merged
}

func addMissing[E any](to, from map[string]E) {
	for name, entry := range from {
		if _, ok := to[name]; !ok {
			to[name] = entry
		}
	}
}
