package mcwebhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// idle is how long a connection stays that asks for nothing. It is that of the clients of API servers.
	idle = 90 * time.Second
	// goodbye is how long requests are given to end when the manager ends.
	goodbye = time.Minute
)

// listener serves as the webhook server of controller-runtime does, and each request ends in time, whatever it asks for. There, a
// body may go on for ever.
type listener struct {
	webhook.Server // takes what is registered, and is not started

	opts    webhook.Options
	answers *server
	serving atomic.Pointer[tls.Config] // nil before it serves
}

func newListener(opts webhook.Options, answers *server) *listener {
	l := &listener{Server: webhook.NewServer(opts), opts: opts, answers: answers}
	l.Register(prefix, answers)
	return l
}

// Start implements webhook.Server. What it has begun has ended when it returns.
func (l *listener) Start(ctx context.Context) error {
	if l.opts.Port < 0 { // as in controller-runtime, it does not serve
		return nil
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	cfg, err := l.configure(ctx, &running)
	if err != nil {
		return err
	}
	socket, err := tls.Listen("tcp", net.JoinHostPort(l.opts.Host, strconv.Itoa(l.opts.Port)), cfg)
	if err != nil {
		return fmt.Errorf("listening for webhooks of members: %w", err)
	}
	srv := &http.Server{
		Handler: l.WebhookMux(), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadTimeout: l.answers.longest, WriteTimeout: l.answers.longest, IdleTimeout: idle, MaxHeaderBytes: 1 << 20,
	}
	running.Go(func() {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		_ = srv.Shutdown(bounded) // what does not end by then is cut off with the program
	})
	l.serving.Store(cfg)
	if err := srv.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks of members: %w", err)
	}
	return nil
}

// configure returns how TLS is served. A certificate of a folder is read again when it changes, until ctx ends.
func (l *listener) configure(ctx context.Context, running *sync.WaitGroup) (*tls.Config, error) {
	cfg := &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	for _, change := range l.opts.TLSOpts {
		change(cfg)
	}
	if cfg.GetCertificate != nil {
		return cfg, nil
	}
	watcher, err := certwatcher.New(
		filepath.Join(l.opts.CertDir, cmp.Or(l.opts.CertName, "tls.crt")), filepath.Join(l.opts.CertDir, cmp.Or(l.opts.KeyName, "tls.key")),
	)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of webhooks: %w", err)
	}
	running.Go(func() {
		if err := watcher.Start(ctx); err != nil {
			l.answers.store.log.Error(err, "Cannot watch the certificate of webhooks")
		}
	})
	cfg.GetCertificate = watcher.GetCertificate
	return cfg, nil
}

var errNotServing = errors.New("webhooks of members are not served yet")

// StartedChecker implements webhook.Server.
func (l *listener) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		cfg := l.serving.Load()
		switch {
		case l.opts.Port < 0:
			return nil
		case cfg == nil:
			return errNotServing
		}
		_, err := cfg.GetCertificate(&tls.ClientHelloInfo{})
		return err
	}
}
