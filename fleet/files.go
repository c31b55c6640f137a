package fleet

import (
	"crypto/sha256"
	"fmt"

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
