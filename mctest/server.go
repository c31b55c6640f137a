package mctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
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
	ports  *ports
	env    *envtest.Environment
	config *rest.Config
	log    *os.File
	audit  string // the path of what its API server notes of service accounts

	apiServer, etcd *Process

	addingUser sync.Mutex // env can add one at a time; it takes no request
	flagged    bool       // it runs with flags of a test

	claiming sync.Mutex        // guards what follows
	claimed  map[string]string // whose rights are recorded, and the manifests that give them

	cleaner *cleaner // of a pool's servers
}

// starter starts servers, a few at a time.
type starter struct {
	programs programs
	slots    chan struct{}
	recorded ledger // of fleets without a pool
}

func newStarter(ctx context.Context) (*starter, error) {
	p, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	return &starter{programs: p, slots: make(chan struct{}, startsAtOnce)}, nil
}

// take starts a server, once a slot is free. A start that fails is tried once more: on a busy machine, what envtest and the
// programs give only seconds to can take longer.
func (s *starter) take(ctx context.Context) (*server, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	srv, first := s.start(ctx)
	if first == nil || ctx.Err() != nil {
		return srv, first
	}
	srv, err := s.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w\nthe attempt before: %w", err, first)
	}
	return srv, nil
}

func (s *starter) giveBack(srv *server) error { return srv.close() }

func (s *starter) ledger() *ledger { return &s.recorded }

// start starts a server, with a folder and ports of its own. A start that fails leaves nothing.
func (s *starter) start(ctx context.Context) (*server, error) {
	r, err := startReaper()
	if err != nil {
		return nil, err
	}
	p, err := reservePorts(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	srv, err := newServer(s.programs, r, p)
	if err != nil {
		return nil, errors.Join(err, r.close(), p.close())
	}
	stop := context.AfterFunc(ctx, func() { _ = r.close() }) // what has started is killed, so the start fails
	err = srv.start()
	switch {
	case !stop():
		return nil, errors.Join(context.Cause(ctx), srv.abandon())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("starting a control plane: %w", err), srv.abandon())
	}
	return srv, nil
}

// newServer prepares a server in the folder of the reaper. Its processes do not run yet.
func newServer(p programs, r *reaper, ports *ports) (*server, error) {
	etcdPath, etcdPID, err := writeWrapper(r.dir, p.etcd)
	if err != nil {
		return nil, err
	}
	apiServerPath, apiServerPID, err := writeWrapper(r.dir, p.apiServer)
	if err != nil {
		return nil, err
	}
	etcd := &envtest.Etcd{
		Path: etcdPath, DataDir: filepath.Join(r.dir, "data"),
		URL: &url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, ports.etcd)},
	}
	etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort(loopback, "0")) // it has no peers
	apiServer := &envtest.APIServer{Path: apiServerPath, CertDir: filepath.Join(r.dir, "certificates")}
	apiServer.Address, apiServer.Port = loopback, ports.apiServer
	for _, f := range p.lean {
		apiServer.Configure().Append(f.name, f.value)
	}
	audit, err := auditTo(apiServer, r.dir)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{etcd.DataDir, apiServer.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if os.Getenv("KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT") != "true" {
		etcd.Out, etcd.Err, apiServer.Out, apiServer.Err = log, log, log, log
	}
	existing := false
	env := &envtest.Environment{UseExistingCluster: &existing, ControlPlaneStartTimeout: startTimeout}
	env.ControlPlane.Etcd, env.ControlPlane.APIServer = etcd, apiServer
	return &server{
		reaper: r, ports: ports, env: env, log: log, audit: audit,
		etcd:      &Process{pidFile: etcdPID, start: etcd.Start, wait: etcd.Stop},
		apiServer: &Process{pidFile: apiServerPID, start: apiServer.Start, wait: apiServer.Stop},
	}, nil
}

// start starts the processes and returns once they are ready.
func (s *server) start() error {
	config, err := s.env.Start()
	err = errors.Join(err, s.env.WebhookInstallOptions.Cleanup()) // certificates for webhooks of the test binary, not needed
	if err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(s.log.Name()))
	}
	s.config, s.etcd.running, s.apiServer.running = config, true, true
	return nil
}

// abandon ends a server whose start has failed, or was interrupted and may have succeeded.
func (s *server) abandon() error {
	err := s.reaper.close()
	// Killed processes are there for another moment. That they were killed is no failure.
	_, _ = s.apiServer.wait(), s.etcd.wait()
	return errors.Join(err, s.log.Close(), s.ports.close(), os.RemoveAll(s.reaper.dir))
}

// close kills the processes and removes the files.
func (s *server) close() error {
	return errors.Join(s.apiServer.Stop(), s.etcd.Stop(), s.log.Close(), s.reaper.close(), s.ports.close())
}

// reset makes the server look new, or returns why it cannot.
func (s *server) reset() error {
	if s.flagged {
		return errFlagged
	}
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
	s.claiming.Lock()
	s.claimed = nil
	s.claiming.Unlock()
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
