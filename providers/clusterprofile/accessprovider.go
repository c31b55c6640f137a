package clusterprofile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
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

// Limits of what a profile may say. A program gets its configuration in a variable, for which Linux has room for 128 KiB.
const (
	maxExtension = 64 << 10 // bytes of one extension
	maxAdded     = 100      // arguments, and variables
	maxShown     = 80       // bytes of a profile's text in a message
)

// member returns the member that is reached by this access provider at the cluster that a profile describes. Whether the
// cluster is as it may be is for [kubeconfig.Member] to say. The program is not: the operator chose it.
//
// Package access of sigs.k8s.io/cluster-inventory-api does not do: in v0.1.2 it adds to the configuration itself, puts
// variables into another order each time, and leaves tls-server-name out.
func (a AccessProvider) member(name fleet.ClusterName, described clientcmdv1.Cluster, allow kubeconfig.Allow) fleet.Member {
	program, err := a.program(described.Extensions)
	if err != nil {
		return fleet.Member{Name: name, Err: err}
	}
	described.Extensions = nil
	text, err := json.Marshal(clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: a.Name,
		Contexts: []clientcmdv1.NamedContext{{
			Name: a.Name, Context: clientcmdv1.Context{Cluster: a.Name, AuthInfo: a.Name},
		}},
		Clusters:  []clientcmdv1.NamedCluster{{Name: a.Name, Cluster: described}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: a.Name}},
	})
	if err != nil {
		return fleet.Member{Name: name, Err: errors.New("the cluster in the profile cannot be written as JSON")}
	}
	m := kubeconfig.Member(name, text, "", allow)
	if m.Err != nil {
		return m
	}
	m.Config.ExecProvider = program
	if m.Revision, err = revision(m.Revision, program); err != nil {
		return fleet.Member{Name: name, Err: err}
	}
	return m
}

// program returns the program with what a profile adds to it. What is configured here is copied, since the next cluster is
// to get none of what this one adds.
func (a AccessProvider) program(extensions []clientcmdv1.NamedExtension) (*clientcmdapi.ExecConfig, error) {
	configured := a.ExecConfig.DeepCopy()
	program := &clientcmdapi.ExecConfig{
		Command: configured.Command, Args: configured.Args, APIVersion: configured.APIVersion,
		InstallHint: configured.InstallHint, ProvideClusterInfo: configured.ProvideClusterInfo,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	for _, v := range configured.Env {
		program.Env = append(program.Env, clientcmdapi.ExecEnvVar{Name: v.Name, Value: v.Value})
	}
	for _, e := range extensions {
		if err := a.extend(program, e.Name, e.Extension.Raw); err != nil {
			return nil, fmt.Errorf("extension %s: %w", e.Name, err)
		}
	}
	return program, nil
}

// extend adds to the program what an extension says. Extensions that mean nothing to it add nothing.
func (a AccessProvider) extend(program *clientcmdapi.ExecConfig, extension string, raw []byte) error {
	if !slices.Contains([]string{execExtension, argsExtension, envsExtension}, extension) {
		return nil
	}
	if len(raw) > maxExtension {
		return fmt.Errorf("it has %d bytes, %d are allowed", len(raw), maxExtension)
	}
	switch extension {
	case argsExtension:
		return a.Args.add(program, raw)
	case envsExtension:
		return a.Env.add(program, raw)
	}
	var config bytes.Buffer
	if json.Compact(&config, raw) != nil {
		return errors.New("it must be JSON")
	}
	program.Config = &runtime.Unknown{Raw: config.Bytes(), ContentType: runtime.ContentTypeJSON}
	return nil
}

// revision returns a hash of all that the member is made of: the revision of its cluster, and the program.
func revision(ofCluster string, program *clientcmdapi.ExecConfig) (string, error) {
	text, err := json.Marshal([]any{ofCluster, program, program.Config}) // the JSON of ExecConfig leaves Config out
	if err != nil {
		return "", fmt.Errorf("extension %s: %w", execExtension, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// add adds a profile's arguments to those of the program.
func (policy ArgsPolicy) add(program *clientcmdapi.ExecConfig, raw []byte) error {
	if policy != AppendArgs {
		return nil
	}
	var args []string
	if json.Unmarshal(raw, &args) != nil {
		return errors.New("it must be a list of strings")
	}
	if len(args) > maxAdded {
		return fmt.Errorf("it has %d arguments, %d are allowed", len(args), maxAdded)
	}
	program.Args = append(program.Args, args...)
	return nil
}

// add adds a profile's variables to those of the program, by name, so that the same ones always make the same config.
func (policy EnvPolicy) add(program *clientcmdapi.ExecConfig, raw []byte) error {
	if policy != AppendEnvIfNotExists && policy != ReplaceEnv {
		return nil
	}
	var added map[string]string
	if json.Unmarshal(raw, &added) != nil {
		return errors.New("it must be a map of strings")
	}
	if len(added) > maxAdded {
		return fmt.Errorf("it has %d variables, %d are allowed", len(added), maxAdded)
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		// A name with "=" in it would set another variable.
		if wrong := validation.IsEnvVarName(name); len(wrong) > 0 {
			return fmt.Errorf("%q cannot be the name of a variable: %s", oneline.Text(name, maxShown), wrong[0])
		}
		i := slices.IndexFunc(program.Env, func(v clientcmdapi.ExecEnvVar) bool { return v.Name == name })
		switch {
		case i < 0:
			program.Env = append(program.Env, clientcmdapi.ExecEnvVar{Name: name, Value: added[name]})
		case policy == ReplaceEnv:
			program.Env[i].Value = added[name]
		}
	}
	return nil
}
