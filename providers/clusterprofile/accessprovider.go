package clusterprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// Extensions of a profile's cluster that have a meaning for credentials, by
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory#passing-plugin-configuration-via-extensions
const (
	execExtension = "client.authentication.k8s.io/exec" // client-go passes it to the program
	argsExtension = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
	envsExtension = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
)

// AccessProvider is a way to get credentials for clusters: a program that the operator of the manager has chosen. It runs
// as the manager, on the manager's host. What it is told of a cluster comes from the ClusterProfile: the address, and
// what the extension client.authentication.k8s.io/exec has. Arguments and environment variables come from there only if
// the policies say so.
type AccessProvider struct {
	// Name is the name of the access provider in the profiles. Required.
	Name string `json:"name"`

	// ExecConfig says what to run, as in a kubeconfig. Its Command and APIVersion are required. Set ProvideClusterInfo
	// for a program that is to know the cluster. InteractiveMode does not count: the program never gets an input.
	ExecConfig clientcmdv1.ExecConfig `json:"execConfig"`

	// Args says what becomes of the arguments that a profile adds.
	// Default: [IgnoreArgs].
	Args ArgsPolicy `json:"profileSourcedCLIArgsPolicy,omitempty"` //nolint:tagliatelle // the format is that of KEP-5339

	// Env says what becomes of the environment variables that a profile adds.
	// Default: [IgnoreEnv].
	Env EnvPolicy `json:"profileSourcedEnvVarsPolicy,omitempty"`
}

// ArgsPolicy says what becomes of the arguments that a ClusterProfile adds to those of the program.
type ArgsPolicy string

const (
	// IgnoreArgs leaves them out.
	IgnoreArgs ArgsPolicy = "Ignore"
	// AppendArgs appends them. Whoever writes profiles can then have the program do all that its arguments can.
	AppendArgs ArgsPolicy = "Append"
)

// EnvPolicy says what becomes of the environment variables that a ClusterProfile adds to those of the program. The
// variables of the manager's own environment, such as PATH, do not count as the program's: if profiles may add variables,
// whoever writes profiles can have the manager run any program.
type EnvPolicy string

const (
	// IgnoreEnv leaves them out.
	IgnoreEnv EnvPolicy = "Ignore"
	// AppendEnvIfNotExists adds those that ExecConfig does not set.
	AppendEnvIfNotExists EnvPolicy = "AppendIfNotExists"
	// ReplaceEnv adds all, and has them take precedence over those that ExecConfig sets.
	ReplaceEnv EnvPolicy = "Replace"
)

// ReadAccessProviders reads the file that KEP-5339 has for the operator of a controller, in JSON or YAML:
//
//	providers:
//	- name: google
//	  execConfig:
//	    apiVersion: client.authentication.k8s.io/v1
//	    command: gke-gcloud-auth-plugin
//	    provideClusterInfo: true
//	  profileSourcedCLIArgsPolicy: Append
//
// It returns an error for fields that the format does not have, and for values that cannot be used.
func ReadAccessProviders(path string) ([]AccessProvider, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator of the manager names the file
	if err != nil {
		return nil, fmt.Errorf("read the access providers: %w", err)
	}
	providers, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the access providers in %s: %w", path, err)
	}
	return providers, nil
}

func parse(text []byte) ([]AccessProvider, error) {
	var file struct {
		Providers []AccessProvider `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	return file.Providers, validate(file.Providers)
}

// validate returns an error that says all that is wrong.
func validate(providers []AccessProvider) error {
	var errs []error
	seen := map[string]bool{}
	for i, a := range providers {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("access provider %d (%q): %s", i, a.Name, fmt.Sprintf(format, args...)))
		}
		if a.Name == "" || seen[a.Name] {
			wrong("give it a name of its own")
		}
		seen[a.Name] = true
		if a.ExecConfig.Command == "" {
			wrong("set the command of its execConfig")
		}
		versions := []string{clientauthenticationv1.SchemeGroupVersion.String(), clientauthenticationv1beta1.SchemeGroupVersion.String()}
		if !slices.Contains(versions, a.ExecConfig.APIVersion) {
			wrong("set the apiVersion of its execConfig to one of %q, not to %q", versions, a.ExecConfig.APIVersion)
		}
		if args := []ArgsPolicy{"", IgnoreArgs, AppendArgs}; !slices.Contains(args, a.Args) {
			wrong("set its profileSourcedCLIArgsPolicy to one of %q, not to %q", args[1:], a.Args)
		}
		if envs := []EnvPolicy{"", IgnoreEnv, AppendEnvIfNotExists, ReplaceEnv}; !slices.Contains(envs, a.Env) {
			wrong("set its profileSourcedEnvVarsPolicy to one of %q, not to %q", envs[1:], a.Env)
		}
	}
	return errors.Join(errs...)
}

func names(providers []AccessProvider) []string {
	all := make([]string, len(providers))
	for i, a := range providers {
		all[i] = a.Name
	}
	return all
}

// kubeconfig returns a kubeconfig that reaches the cluster of a profile by this access provider. The cluster is as the
// profile has it, but for extensions that mean nothing. What is configured here is copied, since the next cluster is to
// get none of what this one adds.
//
// Package access of sigs.k8s.io/cluster-inventory-api does not do: in v0.1.2 it adds to the configuration itself, puts
// variables into another order each time, and leaves tls-server-name out.
func (a AccessProvider) kubeconfig(described clientcmdv1.Cluster) ([]byte, error) {
	program := a.ExecConfig.DeepCopy()
	program.InteractiveMode = clientcmdv1.NeverExecInteractiveMode
	extensions := described.Extensions
	described.Extensions = nil
	for _, e := range extensions {
		var err error
		switch e.Name {
		case execExtension:
			described.Extensions = append(described.Extensions, e)
		case argsExtension:
			err = a.Args.add(program, e.Extension.Raw)
		case envsExtension:
			err = a.Env.add(program, e.Extension.Raw)
		}
		if err != nil {
			return nil, fmt.Errorf("extension %s: %w", e.Name, err)
		}
	}
	return json.Marshal(clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: a.Name,
		Contexts: []clientcmdv1.NamedContext{{
			Name: a.Name, Context: clientcmdv1.Context{Cluster: a.Name, AuthInfo: a.Name},
		}},
		Clusters:  []clientcmdv1.NamedCluster{{Name: a.Name, Cluster: described}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: a.Name, AuthInfo: clientcmdv1.AuthInfo{Exec: program}}},
	})
}

// add adds a profile's arguments to those of the program.
func (policy ArgsPolicy) add(program *clientcmdv1.ExecConfig, raw []byte) error {
	if policy != AppendArgs {
		return nil
	}
	var args []string
	if json.Unmarshal(raw, &args) != nil {
		return errors.New("it must be a list of strings")
	}
	program.Args = append(program.Args, args...)
	return nil
}

// add adds a profile's variables to those of the program, by name, so that the same ones always make the same config.
func (policy EnvPolicy) add(program *clientcmdv1.ExecConfig, raw []byte) error {
	if policy != AppendEnvIfNotExists && policy != ReplaceEnv {
		return nil
	}
	var added map[string]string
	if json.Unmarshal(raw, &added) != nil {
		return errors.New("it must be a map of strings")
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		// A name with "=" in it would set another variable.
		if wrong := validation.IsEnvVarName(name); len(wrong) > 0 {
			return fmt.Errorf("%q cannot be the name of a variable: %s", name, wrong[0])
		}
		i := slices.IndexFunc(program.Env, func(v clientcmdv1.ExecEnvVar) bool { return v.Name == name })
		switch {
		case i < 0:
			program.Env = append(program.Env, clientcmdv1.ExecEnvVar{Name: name, Value: added[name]})
		case policy == ReplaceEnv:
			program.Env[i].Value = added[name]
		}
	}
	return nil
}
