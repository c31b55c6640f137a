package mctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// startTimeout is long, since one of many API servers that start at once on few cores needs most of a minute.
	startTimeout = 2 * time.Minute
	// startsAtOnce is how many control planes start side by side: each keeps two cores busy.
	startsAtOnce = 2
)

// server is a control plane that runs, whoever uses it.
type server struct {
	reaper *reaper
	env    *envtest.Environment
	config *rest.Config
	log    *os.File

	apiServer, etcd *Process

	addingUser sync.Mutex // env can add one at a time; it takes no request

	cleaner *cleaner // of a pool's servers
}

// starter starts servers, a few at a time.
type starter struct {
	programs programs
	slots    chan struct{}
}

func newStarter(ctx context.Context) (*starter, error) {
	p, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	return &starter{programs: p, slots: make(chan struct{}, startsAtOnce)}, nil
}

// take starts a server, once a slot is free.
func (s *starter) take(ctx context.Context) (*server, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, err := startReaper()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.close() }) // what has started is killed, so the start fails
	srv, err := startServer(ctx, s.programs, r)
	switch {
	case !stop():
		return nil, errors.Join(context.Cause(ctx), r.close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("starting a control plane: %w", err), r.close())
	}
	return srv, nil
}

func (s *starter) giveBack(srv *server) error { return srv.close() }

func startServer(ctx context.Context, p programs, r *reaper) (*server, error) {
	etcdPath, etcdPID, err := writeWrapper(r.dir, p.etcd)
	if err != nil {
		return nil, err
	}
	apiServerPath, apiServerPID, err := writeWrapper(r.dir, p.apiServer)
	if err != nil {
		return nil, err
	}
	logPath := filepath.Join(r.dir, "log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in a folder of our own
	if err != nil {
		return nil, err
	}

	etcd := &envtest.Etcd{Path: etcdPath, DataDir: filepath.Join(r.dir, "data")}
	apiServer := &envtest.APIServer{Path: apiServerPath, CertDir: filepath.Join(r.dir, "certificates")}
	for _, dir := range []string{etcd.DataDir, apiServer.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := assignPorts(ctx, etcd, apiServer); err != nil {
		return nil, err
	}
	for _, f := range p.lean {
		apiServer.Configure().Append(f.name, f.value)
	}
	existing := false
	env := &envtest.Environment{UseExistingCluster: &existing, ControlPlaneStartTimeout: startTimeout}
	env.ControlPlane.Etcd, env.ControlPlane.APIServer = etcd, apiServer
	if os.Getenv("KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT") != "true" {
		etcd.Out, etcd.Err, apiServer.Out, apiServer.Err = log, log, log, log
	}
	config, err := env.Start()
	err = errors.Join(err, env.WebhookInstallOptions.Cleanup()) // certificates for webhooks of the test binary, not needed
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, tail(logPath))
	}
	return &server{
		reaper: r, env: env, config: config, log: log,
		etcd:      &Process{pidFile: etcdPID, start: etcd.Start, wait: etcd.Stop, running: true},
		apiServer: &Process{pidFile: apiServerPID, start: apiServer.Start, wait: apiServer.Stop, running: true},
	}, nil
}

// close kills the processes and removes the files.
func (s *server) close() error {
	return errors.Join(s.apiServer.Stop(), s.etcd.Stop(), s.log.Close(), s.reaper.close())
}

// reset makes the server look new, or returns why it cannot.
func (s *server) reset() error {
	for _, p := range []*Process{s.etcd, s.apiServer} {
		if !p.running {
			return fmt.Errorf("%s is stopped", p.what)
		}
		if err := p.Thaw(); err != nil {
			return err
		}
	}
	// The test has ended, and with it its context.
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	return s.cleaner.clean(ctx)
}

// tail returns the last lines of a file.
func tail(path string) []byte {
	content, err := os.ReadFile(path) //nolint:gosec // in a folder of our own
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], nil)
}
