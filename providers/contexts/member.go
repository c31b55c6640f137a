package contexts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// described is a member, and the context that describes it.
type described struct {
	context Context
	member  fleet.Member
}

// finding is what the files say.
type finding struct {
	members  map[fleet.ClusterName]described
	contexts map[string]bool // the names of the contexts that are there
	problems problems
}

func newFinding() finding {
	return finding{members: map[fleet.ClusterName]described{}, contexts: map[string]bool{}, problems: problems{}}
}

// add adds a member, unless its name is taken.
func (f finding) add(d described) {
	if first, taken := f.members[d.member.Name]; taken {
		f.problems.addFor(objects.ReasonDuplicateName, d.context.String(), fmt.Errorf("the name %q is that of %s", d.member.Name, first.context))
		return
	}
	f.members[d.member.Name] = d
}

// String names the context in messages.
func (c Context) String() string {
	return fmt.Sprintf("context %q of %s", c.Name, cmp.Or(c.File, "no file"))
}

// fault is an error with the reason that the member's state shows.
type fault struct {
	error
	reason string
}

// Reason returns one word for what is wrong.
func (f fault) Reason() string { return f.reason }

// Unwrap returns the error.
func (f fault) Unwrap() error { return f.error }

// describe adds the contexts of a kubeconfig that become members.
func (r *reader) describe(config *clientcmdapi.Config, found finding) {
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if !r.provider.takes(name) {
			continue
		}
		c := Context{Name: name, File: config.Contexts[name].LocationOfOrigin}
		m, err := r.member(config, c)
		if err != nil {
			reason := kubeconfig.ReasonInvalid
			if known, ok := errors.AsType[*kubeconfig.Error](err); ok {
				reason = known.Reason()
			}
			m = fleet.Member{Err: fault{fmt.Errorf("%s: %w", c, err), reason}}
		}
		m.Name, m.Labels = r.provider.name(c), r.provider.labels(c)
		found.contexts[name] = true
		found.add(described{context: c, member: m})
	}
}

// describeMissing adds the contexts that were asked for by their names and are in no file. They may be in one that was not
// read.
func (r *reader) describeMissing(found finding, unread problems) {
	for _, name := range r.provider.Contexts {
		if isPattern(name) || found.contexts[name] {
			continue
		}
		c := Context{Name: name}
		err := fmt.Errorf("context %q is in none of the kubeconfig files", name)
		for _, what := range slices.Sorted(maps.Keys(unread)) {
			err = fmt.Errorf("%w; %s: %w", err, what, unread[what].err)
		}
		found.add(described{context: c, member: fleet.Member{
			Name: r.provider.name(c), Labels: r.provider.labels(c), Err: fault{err, ReasonNoContext},
		}})
	}
}

// member returns the member that a context describes, without name and labels.
func (r *reader) member(config *clientcmdapi.Config, c Context) (fleet.Member, error) {
	used, err := r.used(config, c.Name)
	if err != nil {
		return fleet.Member{}, err
	}
	text, err := clientcmd.Write(*used)
	if err != nil {
		return fleet.Member{}, err
	}
	m := kubeconfig.Member("", text, c.Name, everything(used))
	return m, m.Err
}

// everything is what kubectl lets a kubeconfig do.
func everything(config *clientcmdapi.Config) kubeconfig.Allow {
	allow := kubeconfig.Allow{AuthProvider: true, Files: true, InsecureTLS: true, PlainHTTP: true}
	for _, user := range config.AuthInfos {
		if user.Exec != nil {
			allow.Exec = append(allow.Exec, kubeconfig.Exactly(*user.Exec))
		}
	}
	return allow
}

// used returns a kubeconfig of what a context uses alone. It holds certificates and keys that are in files: client-go
// would read the server's never again, and the user's at the next connection. The file of a token is named in it, and read
// again by client-go every minute.
func (r *reader) used(config *clientcmdapi.Config, name string) (*clientcmdapi.Config, error) {
	context := config.Contexts[name]
	used := clientcmdapi.NewConfig()
	used.Contexts[name] = context
	origins := []string{context.LocationOfOrigin}
	var named []string // files that are named in it
	if cluster := config.Clusters[context.Cluster]; cluster != nil {
		used.Clusters[context.Cluster] = cluster
		origins = append(origins, cluster.LocationOfOrigin)
		named = append(named, cluster.CertificateAuthority)
	}
	if user := config.AuthInfos[context.AuthInfo]; user != nil {
		used.AuthInfos[context.AuthInfo] = user
		origins = append(origins, user.LocationOfOrigin)
		named = append(named, user.ClientCertificate, user.ClientKey, user.TokenFile)
	}
	r.watch(named...)
	for _, path := range origins {
		if f := r.files[path]; f.err != nil {
			return nil, fmt.Errorf("%s cannot be used, so what it had before stays in use: %w", path, f.err)
		}
	}
	for _, path := range named {
		if err := onlyFile(path); err != nil {
			return nil, err
		}
	}
	used = used.DeepCopy()
	return used, clientcmdapi.FlattenConfig(used)
}

// watch notes files that a kubeconfig names. Empty paths are none.
func (r *reader) watch(paths ...string) {
	for _, path := range paths {
		if path != "" {
			r.folders.add(path)
		}
	}
}
