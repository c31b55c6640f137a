package contexts_test

import (
	"bytes"
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

// TestConformance runs the suite on the ways in which people keep kubeconfigs. Contexts have the names of the clusters.
func TestConformance(t *testing.T) {
	for name, way := range map[string]way{
		"a folder of files":    {keep: inFolder},
		"a mounted Secret":     {keep: mounted, otherInPlace: true},
		"everything in a file": {keep: inOneFile, otherInPlace: true, one: true},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
				t.Helper()
				return newSource(t, way).forSuite()
			}})
		})
	}
}

// way is how kubeconfigs are kept in a folder.
type way struct {
	// keep makes the folder have the entries.
	keep func(t *testing.T, folder string, entries map[string]entry)
	// one says that there is one file, and its name is "config".
	one bool
	// otherInPlace says what an interruption does: it leads the way to the folder to a file, or leaves nothing there.
	otherInPlace bool
}

// entry describes a cluster.
type entry struct {
	providertest.Description

	broken bool
}

// source is a folder of kubeconfigs.
type source struct {
	way

	path    string // where the provider looks; with otherInPlace a symbolic link
	folder  string // where the folder is
	entries map[string]entry

	mu     sync.Mutex // guards what follows
	labels map[string]map[string]string
	asked  func(context string) // called when a provider asks for the labels of a context; nil before there is one
}

func newSource(t *testing.T, w way) *source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clusters")
	s := &source{way: w, path: path, folder: path, entries: map[string]entry{}, labels: map[string]map[string]string{}}
	if !w.otherInPlace {
		must(t, os.Mkdir(path, 0o700))
		return s
	}
	s.folder = t.TempDir()
	s.lead(t, s.folder)
	return s
}

// lead makes the provider's path a symbolic link to the target, in one step.
func (s *source) lead(t *testing.T, target string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(target, link))
	must(t, os.Rename(link, s.path))
}

func (s *source) forSuite() providertest.Source {
	suite := providertest.Source{
		Provider:  s.provider,
		Set:       func(t *testing.T, d providertest.Description) { t.Helper(); s.set(t, d.Name, entry{Description: d}) },
		Break:     func(t *testing.T, d providertest.Description) { t.Helper(); s.set(t, d.Name, entry{d, true}) },
		Remove:    s.remove,
		Rename:    s.rename,
		Interrupt: s.interrupt,
	}
	if !s.one {
		suite.Duplicate = func(t *testing.T, d providertest.Description) {
			t.Helper()
			s.set(t, "zz-"+d.Name, entry{Description: d})
		}
	}
	return suite
}

func (s *source) provider() fleet.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = func(string) {}
	p := contexts.Provider{Labels: s.labelsOf, Interval: never}
	if s.one {
		p.Kubeconfig = filepath.Join(s.path, "config")
	} else {
		p.Files = []string{s.path}
	}
	return p
}

func (s *source) labelsOf(c contexts.Context) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked(c.Name)
	return s.labels[c.Name]
}

func (s *source) set(t *testing.T, file string, e entry) {
	t.Helper()
	s.mu.Lock()
	s.labels[e.Name] = maps.Clone(e.Labels)
	s.mu.Unlock()
	s.entries[file] = e
	s.keep(t, s.folder, s.entries)
}

func (s *source) remove(t *testing.T, name string) {
	t.Helper()
	delete(s.entries, name)
	s.keep(t, s.folder, s.entries)
}

func (s *source) rename(t *testing.T, from, to string) {
	t.Helper()
	e := s.entries[from]
	delete(s.entries, from)
	e.Name = to
	s.set(t, to, e)
}

// interrupt puts the folder out of reach. A provider that has asked twice for the labels of the same context has begun to
// read after that.
func (s *source) interrupt(t *testing.T) (noticed <-chan struct{}, restore func()) {
	t.Helper()
	s.mu.Lock() // a provider that reads before the counting begins waits for it
	defer s.mu.Unlock()
	restore = s.hide(t)
	if s.asked == nil {
		return nil, restore
	}
	read, times := make(chan struct{}), map[string]int{}
	tell := sync.OnceFunc(func() { close(read) })
	s.asked = func(context string) {
		if times[context]++; times[context] == 2 {
			tell()
		}
	}
	return read, restore
}

// hide makes the provider's path lead elsewhere, in one step, until restore is called. If there were two steps, and a
// moment between them, then the provider would find a removal.
func (s *source) hide(t *testing.T) (restore func()) {
	t.Helper()
	if s.otherInPlace {
		file := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(file, nil, 0o600))
		s.lead(t, file)
		return func() { s.lead(t, s.folder) }
	}
	s.folder = s.path + ".away"
	must(t, os.Rename(s.path, s.folder))
	return func() {
		must(t, os.Rename(s.folder, s.path))
		s.folder = s.path
	}
}

// kubeconfig returns the kubeconfig of an entry, in which all names are that of the cluster.
func (e entry) kubeconfig() *clientcmdapi.Config {
	config := with(e.Name)
	config.Clusters[e.Name] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData}
	config.AuthInfos[e.Name].Token = e.Config.BearerToken
	return config
}

// content returns the text of a file that has the entry alone. A broken one has a string in it that does not end.
func (e entry) content(t *testing.T) []byte {
	t.Helper()
	content := text(t, e.kubeconfig())
	if !e.broken {
		return content
	}
	end := bytes.Index(content, []byte(e.Config.BearerToken))
	return slices.Concat(content[:end], []byte(`"`), content[end:len(content)-2])
}

// inFolder keeps a file for each entry.
func inFolder(t *testing.T, folder string, entries map[string]entry) {
	t.Helper()
	files, err := os.ReadDir(folder)
	must(t, err)
	for _, file := range files {
		if _, ok := entries[file.Name()]; !ok {
			must(t, os.Remove(filepath.Join(folder, file.Name())))
		}
	}
	for name, e := range entries {
		putText(t, filepath.Join(folder, name), e.content(t))
	}
}

// mounted keeps the keys of a Secret as kubelet does: a new folder with all of them takes the place of the one before by
// a symbolic link, through which the links lead that are seen.
func mounted(t *testing.T, folder string, entries map[string]entry) {
	t.Helper()
	before, err := os.ReadDir(folder)
	must(t, err)
	version := filepath.Join(folder, "..version-"+rand.Text())
	must(t, os.Mkdir(version, 0o700))
	for name, e := range entries {
		putText(t, filepath.Join(version, name), e.content(t))
	}
	must(t, os.Symlink(filepath.Base(version), filepath.Join(folder, "..data_tmp")))
	must(t, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
	for name := range entries {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	for _, old := range before {
		if _, ok := entries[old.Name()]; !ok && old.Name() != "..data" {
			must(t, os.RemoveAll(filepath.Join(folder, old.Name())))
		}
	}
}

// inOneFile keeps all entries in one file. A broken one has a user with too much in it.
func inOneFile(t *testing.T, folder string, entries map[string]entry) {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for _, e := range entries {
		config := e.kubeconfig()
		if e.broken {
			config.AuthInfos[e.Name].Username, config.AuthInfos[e.Name].Password = "user", e.Config.BearerToken
		}
		maps.Copy(all.Contexts, config.Contexts)
		maps.Copy(all.Clusters, config.Clusters)
		maps.Copy(all.AuthInfos, config.AuthInfos)
	}
	put(t, filepath.Join(folder, "config"), all)
}
