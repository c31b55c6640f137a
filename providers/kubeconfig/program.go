package kubeconfig

import (
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Program is a program that gets credentials, and the ways in which kubeconfigs may run it. It runs as the manager, on the
// manager's host.
//
// Patterns match a whole text, and * in them stands for any characters. A text that begins with - is only matched by a
// pattern that does, so that no argument can become an option.
type Program struct {
	// Command is what kubeconfigs must say, letter for letter: a name, which is looked up in the manager's PATH, or a path.
	// A shell, or a program that can be told to start others, gives all away. Required.
	Command string

	// Args are patterns of the arguments, which a kubeconfig must give in this order and number.
	// Default: there must be none.
	Args []string

	// Env has patterns of the values of environment variables that kubeconfigs may set, by their names. Each may be left
	// out: the program has that of the manager then. Variables that make programs load or run others, such as PATH and
	// LD_PRELOAD, give all away. No variable may be given twice.
	// Default: none may be set.
	Env map[string]string

	// Hosts are patterns of the names of the servers that may get the credentials, without port, such as
	// *.eks.amazonaws.com. They rule out proxy-url: together with a CA of its own, a proxy can read what is sent.
	// Default: any. Whoever writes a kubeconfig can then have the credentials sent to a server of their own.
	Hosts []string

	// ClusterInfo allows provideClusterInfo: telling the program the server, the CA, and what the kubeconfig has in the
	// extension client.authentication.k8s.io/exec. Some programs take orders from that.
	ClusterInfo bool
}

// Exactly returns what allows exec as it is: for kubeconfigs in which not a stranger has chosen it. If exec gives a variable
// twice, it is refused nevertheless: take out the value that does not count, which is the first.
func Exactly(exec clientcmdapi.ExecConfig) Program {
	env := make(map[string]string, len(exec.Env))
	for _, v := range exec.Env {
		env[v.Name] = v.Value
	}
	return Program{Command: exec.Command, Args: exec.Args, Env: env, ClusterInfo: exec.ProvideClusterInfo}
}

// whyNotRun returns why none of the programs is what the user runs, without a word from it; or nothing, if one is or if
// the user runs nothing.
func (s *selection) whyNotRun(programs []Program, host string) string {
	if s.user.Exec == nil {
		return ""
	}
	why := "its command is not listed there"
	for _, p := range programs {
		if p.Command != s.user.Exec.Command {
			continue
		}
		if why = s.whyNotBy(p, host); why == "" {
			return ""
		}
	}
	return why
}

// whyNotBy returns why a program may not be run in the way of the user.
func (s *selection) whyNotBy(p Program, host string) string {
	exec := s.user.Exec
	listed := func(v clientcmdapi.ExecEnvVar) bool {
		pattern, ok := p.Env[v.Name]
		return ok && matches(pattern, v.Value)
	}
	switch {
	case !slices.EqualFunc(p.Args, exec.Args, matches):
		return "its args are not those that are listed for the command"
	case givesTwice(exec.Env):
		return "its env gives a variable twice"
	case slices.ContainsFunc(exec.Env, func(v clientcmdapi.ExecEnvVar) bool { return !listed(v) }):
		return "its env has variables or values that are not listed for the command"
	case exec.ProvideClusterInfo && !p.ClusterInfo:
		return "its provideClusterInfo is not listed for the command"
	case len(p.Hosts) == 0:
		return ""
	case !slices.ContainsFunc(p.Hosts, func(pattern string) bool { return isServer(pattern, host) }):
		return "the server is not one of those that are listed for the command"
	case s.cluster.ProxyURL != "":
		return "there must be no proxy, since servers are listed for the command"
	}
	return ""
}

// givesTwice reports whether a variable has two values.
func givesTwice(env []clientcmdapi.ExecEnvVar) bool {
	names := make(map[string]struct{}, len(env))
	for _, v := range env {
		names[v.Name] = struct{}{}
	}
	return len(names) < len(env)
}

// isServer reports whether a pattern of Hosts matches a server. The zone of an IPv6 address may be any text, such as the end
// of a listed name, and decides nothing about where the connection goes.
func isServer(pattern, host string) bool {
	return !strings.Contains(host, "%") && matches(pattern, strings.ToLower(host))
}

// matches reports whether a pattern matches a text.
func matches(pattern, text string) bool {
	if strings.HasPrefix(text, "-") && !strings.HasPrefix(pattern, "-") {
		return false
	}
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1:last] {
		if ok {
			_, rest, ok = strings.Cut(rest, part)
		}
	}
	return ok && strings.HasSuffix(rest, parts[last])
}
