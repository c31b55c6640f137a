package contexts_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

// TestContextsLeadWhereKubectlGoes compares random sets of kubeconfig files with what client-go makes of them for
// kubectl.
func TestContextsLeadWhereKubectlGoes(t *testing.T) {
	ca, _ := newCertificate(t)
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			paths := make([]string, 3)
			for i := range paths {
				folder := filepath.Join(dir, fmt.Sprint(i))
				paths[i] = filepath.Join(folder, "config")
				put(t, paths[i], randomConfig(random, i))
				putText(t, filepath.Join(folder, "ca"), ca)
				putText(t, filepath.Join(folder, "token"), []byte(fmt.Sprint("token of ", i)))
			}
			rules := &clientcmd.ClientConfigLoadingRules{Precedence: paths}
			merged, err := rules.Load()
			must(t, err)

			r := start(t, contexts.Provider{Kubeconfig: strings.Join(paths, string(os.PathListSeparator))})
			r.until(func() string {
				if len(r.now) != len(merged.Contexts) {
					return fmt.Sprintf("there are %d members, want %d", len(r.now), len(merged.Contexts))
				}
				return ""
			})
			for name, context := range merged.Contexts {
				m := r.member(fleet.ClusterName(name))
				if _, ok := merged.AuthInfos[context.AuthInfo]; !ok && context.AuthInfo != "" {
					if m.Err == nil { // kubectl would go there without credentials
						t.Errorf("context %s has no user, and leads to %s", name, m.Config.Host)
					}
					continue
				}
				want, err := clientcmd.NewNonInteractiveClientConfig(*merged, name, nil, rules).ClientConfig()
				if (err != nil) != (m.Err != nil) {
					t.Errorf("context %s: kubectl has error %v, the member %v", name, err, m.Err)
				}
				if err != nil || m.Err != nil {
					continue
				}
				must(t, rest.LoadTLSFiles(want))
				want.CAFile = ""
				if want.ExecProvider != nil && want.ExecProvider.InteractiveMode != clientcmdapi.NeverExecInteractiveMode {
					// Plugins may not ask questions.
					want.ExecProvider.StdinUnavailable = true
					want.ExecProvider.StdinUnavailableMessage = m.Config.ExecProvider.StdinUnavailableMessage
				}
				if diff := cmp.Diff(want, m.Config); diff != "" {
					t.Errorf("context %s (-kubectl +member):\n%s", name, diff)
				}
			}
		})
	}
}

// randomConfig returns a kubeconfig with a few entries of a few names, with paths relative to its file.
func randomConfig(random *rand.Rand, file int) *clientcmdapi.Config {
	names := []string{"a", "b", "c"}
	name := func() string { return names[random.IntN(len(names))] }
	config := clientcmdapi.NewConfig()
	for range 2 {
		context := &clientcmdapi.Context{Cluster: name(), AuthInfo: name()}
		if random.IntN(4) == 0 {
			context.AuthInfo = ""
		}
		config.Contexts[name()] = context
		cluster := &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s%d", name(), file)}
		if random.IntN(2) == 0 {
			cluster.CertificateAuthority = "ca"
		}
		config.Clusters[name()] = cluster
		user := clientcmdapi.NewAuthInfo()
		switch random.IntN(3) {
		case 0:
			user.Token = fmt.Sprint(name(), file)
		case 1:
			user.TokenFile = "token"
		case 2:
			user.Exec = &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "./plugin", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		}
		config.AuthInfos[name()] = user
	}
	return config
}
