package fleet

import (
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// files is a hash of what was read from the files that a config names, and zero if it names none. Certificates in files
// are replaced while a program runs: those of kubelets, and those that cert-manager or a service mesh mounts. New ones are
// new credentials, and taken over as such.
type files [sha256.Size]byte

// inlined returns a copy of cfg that holds the certificates of the files that it names. client-go itself follows token
// files.
func inlined(cfg *rest.Config) (*rest.Config, files, error) {
	if !namesFiles(cfg) {
		return cfg, files{}, nil
	}
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, files{}, fmt.Errorf("reading the certificates that the config names: %w", err)
	}
	read := sha256.Sum256(fmt.Appendf(nil, "%q", [][]byte{cfg.CAData, cfg.CertData, cfg.KeyData}))
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	return cfg, read, nil
}

func namesFiles(cfg *rest.Config) bool {
	return cfg.CAFile != "" && len(cfg.CAData) == 0 ||
		cfg.CertFile != "" && len(cfg.CertData) == 0 ||
		cfg.KeyFile != "" && len(cfg.KeyData) == 0
}

// haveChanged reports whether the files that cfg names have other certificates now. One that cannot be read has not
// changed: it may be about to be replaced.
func (f files) haveChanged(cfg *rest.Config) bool {
	_, now, err := inlined(cfg)
	return err == nil && now != f
}

// readFilesEvery is how often certificates in files are read again. They are read at once when the server refuses them.
const readFilesEvery = time.Minute

// untilFilesAreRead returns the time until files are to be read again, and zero if the engagement has nothing of any.
func (m *member) untilFilesAreRead() time.Duration {
	if m.files() == (files{}) {
		return 0
	}
	return readFilesEvery
}

// filesChanged reports whether the engagement has other certificates than those in the files that its config names.
func (m *member) filesChanged(described Member) bool { return m.areOthers(m.files(), described) }

// areOthers reports whether other certificates than these are in the files that a description names.
func (m *member) areOthers(read files, described Member) bool {
	if read == (files{}) {
		return false
	}
	cfg, err := m.usable(described)
	return err == nil && read.haveChanged(cfg)
}

// files returns what the engagement has of files.
func (m *member) files() files {
	m.fleet.mu.Lock()
	e := m.engagement
	m.fleet.mu.Unlock()
	if e == nil || e.wire == nil {
		return files{}
	}
	return e.wire.current.Load().files
}
