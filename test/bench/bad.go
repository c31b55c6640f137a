package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

const (
	// goodMembers join after the bad ones.
	goodMembers = 10
	// headStart is how long the bad members are there before.
	headStart = 2 * time.Second
)

type badMember struct {
	name   string
	config *rest.Config
}

func badTable(ctx context.Context) error { return inWorld(ctx, (*world).badTable) }

// badTable answers: how long do healthy members wait behind those that cannot be used?
func (w *world) badTable(ctx context.Context) (err error) {
	dead, stop, err := silent(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	user, err := w.env.AddUser(envtest.User{Name: "without-rights"}, nil)
	if err != nil {
		return err
	}
	unreachable := w.at(0, w.config)
	unreachable.Host = "https://" + dead
	forbidden := w.at(0, user.Config())

	t := table{
		title:  fmt.Sprintf("Bad members: until %d members that join %s after them are reconciled (limit %s)", goodMembers, headStart, *badLimit),
		header: []string{"there before", "", "reconciled", "all after", toOurs},
	}
	one, other := badMember{"forbidden", forbidden}, badMember{"dead", unreachable}
	for i, bad := range []struct {
		name    string
		members []badMember
	}{
		{"one that never answers", []badMember{other}},
		{"one that forbids to list", []badMember{one}},
		{"both", []badMember{one, other}},
	} {
		var ours float64
		for k, subject := range compared()[:min(2, len(compared()))] { // plain clusters do not join
			progressf("%s: joining after %s", subject, bad.name)
			count, last, err := w.joinAfter(ctx, subject, fmt.Sprintf("bad-%d-%d", i, k), bad.members)
			if err != nil {
				return err
			}
			if k == 0 {
				ours = last.Seconds()
			}
			after, against := seconds(last), ratio(last.Seconds(), ours)
			if count < goodMembers {
				after, against = "–", "–"
			}
			t.add(bad.name, subject, fmt.Sprintf("%d of %d", count, goodMembers), after, against)
		}
	}
	t.print()
	return nil
}

// joinAfter returns how many healthy members were reconciled, and when the last of them was, since they joined.
func (w *world) joinAfter(ctx context.Context, subject, namespace string, bad []badMember) (count int, last time.Duration, err error) {
	if err := w.createNamespace(ctx, namespace, 0); err != nil {
		return 0, 0, err
	}
	c, err := w.startChild(ctx, measure.Spec{Subject: subject, Namespace: namespace})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	// What is there when the manager starts may be taken up last.
	if _, err := c.settled(ctx, quiet/2, quiet); err != nil {
		return 0, 0, err
	}
	for _, m := range bad {
		if err := w.createMember(ctx, namespace, m.name, m.config); err != nil {
			return 0, 0, err
		}
	}
	if a, err := c.ask(measure.Request{Do: measure.Wait, Count: 1, AtMost: headStart}); err != nil {
		return 0, 0, err
	} else if a.Count > 0 {
		return 0, 0, fmt.Errorf("%s has reconciled a bad member", subject)
	}
	joined := time.Now()
	if err := each(ctx, goodMembers, func(ctx context.Context, i int) error {
		return w.createMember(ctx, namespace, memberName(i), w.at(i+1, w.config))
	}); err != nil {
		return 0, 0, err
	}
	a, err := c.ask(measure.Request{Do: measure.Wait, Count: goodMembers, AtMost: *badLimit})
	if a.Count > 0 {
		last = time.Unix(0, a.Last).Sub(joined)
	}
	return a.Count, last, err
}

// silent listens where connections are accepted and nothing ever answers, until stop is called.
func silent(ctx context.Context) (address string, stop func() error, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ended := make(chan []net.Conn)
	go func() {
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				ended <- conns
				return
			}
			conns = append(conns, conn)
		}
	}()
	return listener.Addr().String(), func() error {
		err := listener.Close()
		for _, conn := range <-ended {
			_ = conn.Close()
		}
		return err
	}, nil
}
