package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// shortLease is how long a replica of the demo may be silent, so that nobody waits long. The default is 15 s.
const shortLease = 6 * time.Second

// replicas are processes of the program that share the members.
type replicas struct {
	kubeconfig string // of the local cluster
	log        io.Writer
	all        []*process
}

// process is one of them.
type process struct {
	name   string
	cmd    *exec.Cmd
	events io.Reader
	stdin  io.Closer // the process ends when it is closed
	over   chan struct{}

	mu    sync.Mutex // guards what follows
	ended string     // how the demo has ended it, empty before
}

// share prepares the processes.
func (st *stage) share(ctx context.Context, o options) (*replicas, error) {
	if err := st.writeKubeconfigs(); err != nil {
		return nil, err
	}
	for _, cp := range st.Members[2:] {
		if err := st.join(ctx, cp); err != nil {
			return nil, err
		}
	}
	r := &replicas{kubeconfig: filepath.Join(st.folder, st.Local.Name), log: o.log}
	for i := range o.replicas {
		r.all = append(r.all, &process{name: fmt.Sprintf("replica-%d", i+1), over: make(chan struct{})})
	}
	return r, nil
}

// run runs the processes until ctx ends, and notes what they tell. If one ends by itself, all do.
func (r *replicas) run(ctx context.Context, board *board) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range r.all {
		group.Go(func() error {
			if err := p.start(r); err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { p.end("has ended", syscall.SIGTERM) })()
			return p.follow(board)
		})
	}
	return group.Wait()
}

func (p *process) start(r *replicas) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(path, r.kubeconfig) //nolint:gosec,noctx // this program; the demo ends it
	p.cmd.Env = append(os.Environ(), asReplica+"="+p.name)
	p.cmd.Stderr = r.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for the demo
	if p.events, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	return nil
}

// follow notes what the process tells until it ends. That is an error unless the demo has ended it.
func (p *process) follow(board *board) error {
	defer close(p.over)
	events := json.NewDecoder(p.events)
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			break // it has ended
		}
		switch {
		case e.Status != nil:
			board.note(*e.Status)
		case e.Request != nil:
			board.reconciled(*e.Request, e.Version)
		}
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	how := p.ended
	p.mu.Unlock()
	if how == "" {
		return fmt.Errorf("%s has ended by itself: %w", p.name, err)
	}
	board.ended(p.name, how)
	return nil
}

// end ends the process.
func (p *process) end(how string, with syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == "" {
		p.ended = how
		_ = p.cmd.Process.Signal(with) // it may have ended
	}
}

// sharedSteps is the script of processes that share the members.
func (st *stage) sharedSteps(r *replicas) []step {
	last := len(r.all) - 1
	killed, ends := r.all[last], r.all[0]
	steps := []step{
		{
			say: fmt.Sprintf("%d processes of the program start. %d Secrets in the local cluster describe the\n"+
				"members, which the processes share: each member has one that works on it.", len(r.all), len(st.Members)),
			do:    func(context.Context, *scene) (condition, error) { return st.shared(r.all), nil },
			shown: fmt.Sprintf("%d processes shared %d members.", len(r.all), len(st.Members)),
		},
		{
			say:   "A ConfigMap is created in each, and changed.",
			do:    func(ctx context.Context, _ *scene) (condition, error) { return st.workIn(ctx, st.Members) },
			shown: "Each reconciled the ConfigMaps of its own.",
		},
		{
			say: killed.name + " is killed (kill -9), and a ConfigMap is changed in each member. The others\n" +
				"take over once it was silent for " + shortLease.String() + ". The default is 15s.",
			do: func(ctx context.Context, _ *scene) (condition, error) {
				killed.end("was killed", syscall.SIGKILL)
				return st.without(ctx, killed, r.all[:last])
			},
			shown: killed.name + " was killed. The others took over, and missed no change.", timed: true,
		},
		{
			say: ends.name + " is asked to end (SIGTERM), and hands over before it does. A ConfigMap is\n" +
				"changed in each member.",
			do: func(ctx context.Context, _ *scene) (condition, error) {
				ends.end("has ended", syscall.SIGTERM)
				return st.without(ctx, ends, r.all[1:last])
			},
			shown: ends.name + " handed over, and ended.", timed: true,
		},
	}
	if last < 2 {
		return steps[:3] // the last one has nobody to hand over to
	}
	return steps
}

// without waits until a process has ended, changes a ConfigMap in each member, and returns the condition that others have seen to it.
func (st *stage) without(ctx context.Context, gone *process, others []*process) (condition, error) {
	select {
	case <-gone.over:
	case <-ctx.Done():
		return condition{}, context.Cause(ctx)
	}
	conditions := []condition{st.shared(others)}
	for _, cp := range st.Members {
		served, err := st.change(ctx, cp)
		if err != nil {
			return condition{}, err
		}
		conditions = append(conditions, served)
	}
	return all(conditions...), nil
}

// shared holds when each member is Ready in one of the processes, and none has more than its part.
func (st *stage) shared(among []*process) condition {
	count, most := len(st.Members), (len(st.Members)+len(among)-1)/len(among)
	return condition{what: fmt.Sprintf("%d members are shared by %d processes", count, len(among)), holds: func(ms members) bool {
		of := map[string]int{}
		for _, m := range ms {
			if m.state == fleet.Ready && m.reason == "" {
				of[m.owner]++
			}
		}
		shared := 0
		for _, p := range among {
			if of[p.name] > most {
				return false
			}
			shared += of[p.name]
		}
		return shared == count
	}}
}
