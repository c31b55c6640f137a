// Package contexts is the provider of the contexts of kubeconfig files.
//
// The files are those of whoever runs the manager, so they may do what they may do for kubectl: users with exec run
// programs, and certificates and tokens may be in other files. For kubeconfigs that others write, there is package
// kubeconfig.
package contexts

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// providerName is the provider in problems.
const providerName = "contexts"

// DefaultInterval is how often the files are read although no change was noticed.
const DefaultInterval = 30 * time.Second

// ReasonNoContext is the reason of a member whose context was asked for by its name and is in no file.
const ReasonNoContext = "NoContext"

// Provider is a [fleet.Provider] of the contexts of kubeconfig files. It follows the files: it reads them again when they
// change. The zero value has the contexts that kubectl has. A provider must not be changed after Run was called.
type Provider struct {
	// Kubeconfig has the paths of files that are taken together, as kubectl does with those in the environment variable
	// KUBECONFIG, and is written like that: with colons between the paths, on Windows semicolons. The first file that has
	// a context, a cluster or a user of a name counts for that name. Files may be missing.
	// Default: what KUBECONFIG has or, without it, ~/.kube/config; but nothing if Files is set.
	Kubeconfig string

	// Files are kubeconfigs that each stand for themselves: what a context names is in the same file. An element is the
	// path of a file, the path of a folder, or a pattern of paths of files as in [filepath.Match]. Of a folder all files
	// count, except in subfolders, hidden ones (.x) and copies that programs make for a while (x~, x.lock). Files and
	// folders may be missing.
	// Default: none.
	Files []string

	// Contexts are the names of the contexts that become members, or patterns of names as in [path.Match], except that
	// * and ? match slashes too. A name that is in no file becomes a member all the same, one that says so.
	// Default: all.
	Contexts []string

	// Name returns the name of the member. If several contexts give the same name, the first has it: Kubeconfig comes
	// before Files, these come in their order, and the files of a folder or pattern in the order of their paths. The
	// others are left out, and a [fleet.Problem] says so.
	// Default: the name of the context.
	Name func(Context) fleet.ClusterName

	// Labels returns the labels of the member.
	// Default: none.
	Labels func(Context) map[string]string

	// Interval is how often the files are read although no change was noticed. Changes are noticed at once where the file
	// system tells of them, which those of networks do not.
	// Default: [DefaultInterval].
	Interval time.Duration
}

// Context is a context of a kubeconfig file, as functions of a [Provider] get it.
type Context struct {
	// Name is the name of the context in the file.
	Name string
	// File is the absolute path of the file that has the context, with symbolic links as they are. It is empty for a
	// context that was asked for by its name and is in no file.
	File string
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It needs no local cluster. It returns an error only if a pattern cannot be parsed, or if
// a path is relative and there is no working directory.
func (p Provider) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	if err := p.validate(); err != nil {
		return err
	}
	reader, err := newReader(p)
	if err != nil {
		return err
	}
	watcher := newWatcher()
	defer watcher.close()
	reporter := newReporter(members)
	told := problems{}
	for {
		found := look(ctx, reader, watcher)
		reporter.report(found)
		maps.Copy(found.problems, watcher.problems)
		found.problems.tell(members, told)
		told = found.problems
		if !watcher.wait(ctx, p.interval()) {
			return nil
		}
	}
}

// look reads the files. What is read is watched before, so that no change is missed.
func look(ctx context.Context, r *reader, w *watcher) finding {
	for {
		watched := r.folders
		w.follow(watched)
		found := r.read()
		if maps.Equal(watched, r.folders) || ctx.Err() != nil {
			return found
		}
	}
}

func (p Provider) validate() error {
	for _, pattern := range p.Contexts {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("providers/contexts: the pattern %q in Provider.Contexts: %w", pattern, err)
		}
	}
	for _, pattern := range p.Files {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return fmt.Errorf("providers/contexts: the pattern %q in Provider.Files: %w", pattern, err)
		}
	}
	return nil
}

func (p Provider) interval() time.Duration {
	if p.Interval <= 0 {
		return DefaultInterval
	}
	return p.Interval
}

// kubeconfig returns the paths of the files that are taken together.
func (p Provider) kubeconfig() []string {
	if p.Kubeconfig == "" && len(p.Files) == 0 {
		return clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	}
	return filepath.SplitList(p.Kubeconfig)
}

func (p Provider) name(c Context) fleet.ClusterName {
	if p.Name == nil {
		return fleet.ClusterName(c.Name)
	}
	return p.Name(c)
}

func (p Provider) labels(c Context) map[string]string {
	if p.Labels == nil {
		return nil
	}
	return maps.Clone(p.Labels(c))
}

// takes reports whether the context of this name becomes a member.
func (p Provider) takes(name string) bool {
	if len(p.Contexts) == 0 {
		return true
	}
	for _, pattern := range p.Contexts {
		// Names are no paths, but may have slashes, such as those of EKS.
		ok, err := path.Match(noSlashes(pattern), noSlashes(name))
		if ok && err == nil {
			return true
		}
	}
	return false
}

func noSlashes(name string) string { return strings.ReplaceAll(name, "/", "\x00") }

// isPattern reports whether a name has characters that are special in patterns.
func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }
