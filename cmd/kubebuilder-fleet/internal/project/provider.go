package project

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Provider is one of fleet-runtime's, as main.go has it.
type Provider struct {
	pkg     string
	format  string   // of its literal: the package, and the namespace if it has one
	imports []string // others that the literal needs
	reads   string   // what it reads in its namespace of the hub. Without, it has none
	rules   []string // what it must be allowed there
}

func (p Provider) literal(pkg, namespace string) string {
	return strings.NewReplacer("PACKAGE", pkg, "NAMESPACE", namespace).Replace(p.format)
}

// rule is one of RBAC's, in YAML.
func rule(group, resource string, verbs ...string) string {
	return fmt.Sprintf("- apiGroups:\n  - %s\n  resources:\n  - %s\n  verbs:\n  - %s\n", group, resource, strings.Join(verbs, "\n  - "))
}

// role returns the rules of the hub's role.
func (p Provider) role() string {
	if p.reads == "" {
		return ""
	}
	return strings.Join(p.rules, "") + rule("events.k8s.io", "events # about "+p.reads+" that cannot be used", "create", "patch")
}

// DefaultProvider is that of projects that name none.
const DefaultProvider = "kubeconfig"

const inNamespace = `PACKAGE.Provider{Namespace: "NAMESPACE"}`

var providers = map[string]Provider{
	"kubeconfig": {
		pkg: module + "/providers/kubeconfig", format: inNamespace,
		reads: "kubeconfigs", rules: []string{rule(`""`, "secrets", "get", "list", "watch")},
	},
	"capi": {
		pkg: module + "/providers/capi", format: inNamespace, reads: "Clusters",
		rules: []string{rule("cluster.x-k8s.io", "clusters", "get", "list", "watch"), rule(`""`, "secrets", "get", "list", "watch")},
	},
	"clusterprofile": {
		pkg: module + "/providers/clusterprofile", format: `PACKAGE.Provider{Namespace: "NAMESPACE", SecretNamespace: "NAMESPACE"}`,
		reads: "ClusterProfiles",
		rules: []string{rule("multicluster.x-k8s.io", "clusterprofiles", "get", "list", "watch"), rule(`""`, "secrets", "get", "list", "watch")},
	},
	"contexts": {
		pkg: module + "/providers/contexts", format: `PACKAGE.Provider{Contexts: strings.Fields(os.Getenv("MEMBERS"))}`,
		imports: []string{"os", "strings"},
	},
	"kind": {pkg: module + "/providers/kind", format: `PACKAGE.Provider{}`},
}

// ProviderNames returns the names that FindProvider knows.
func ProviderNames() []string { return slices.Sorted(maps.Keys(providers)) }

// FindProvider returns the provider of a name.
func FindProvider(name string) (Provider, error) {
	provider, ok := providers[name]
	if !ok {
		return Provider{}, fmt.Errorf("there is no provider %q; take one of %s", name, strings.Join(ProviderNames(), ", "))
	}
	return provider, nil
}
