package rbacfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

const byHand = `# What the program needs.
apiVersion: v1
kind: ServiceAccount
metadata: {name: p, namespace: fleet}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels: {a: b} # of ours
  namespace: default
  name: p
rules:
# The finalizer is set with a patch.
- apiGroups: [apps]
  resources: [deployments] # of the user
  verbs: [get, list, watch, patch] # patch: the finalizer

- apiGroups:
  - ""
  resources:
  - configmaps
  - secrets
  verbs:
  - get
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# the end
---
# It is bound.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: p, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: p}
subjects: [{kind: ServiceAccount, name: p, namespace: fleet}]
`

// all is what byHand gives.
var all = []string{
	"get deployments.apps in default", "list deployments.apps in default", "watch deployments.apps in default", "patch deployments.apps x in default",
	"get configmaps in default", "get secrets in default", "list pods in default",
}

func TestWhatIsMissingOrTooMuchIsNamed(t *testing.T) {
	wide := strings.ReplaceAll(byHand, "kind: Role\nmetadata:\n  labels: {a: b} # of ours\n  namespace: default", "kind: ClusterRole\nmetadata:")
	for name, tc := range map[string]struct {
		file          string
		asked, needed []string
		missing, much []string
	}{
		"all": {byHand, all, nil, nil, nil},
		"less": {
			byHand, all[1:], nil, nil,
			[]string{"get deployments.apps in default, of the Role p: nobody has asked for it"},
		},
		"less, which is declared":     {byHand, all[1:], []string{"get deployments.apps"}, nil, nil},
		"declared, and not given":     {byHand, all, []string{"update leases.coordination.k8s.io"}, []string{"update leases.coordination.k8s.io"}, nil},
		"more":                        {byHand, append([]string{"delete pods x in default", "delete pods y in default"}, all...), nil, []string{"delete pods in default"}, nil},
		"the same elsewhere":          {byHand, append([]string{"list pods in other"}, all...), nil, []string{"list pods in other"}, nil},
		"everywhere":                  {byHand, append([]string{"list pods"}, all...), nil, []string{"list pods"}, nil},
		"nothing":                     {"", nil, nil, nil, nil},
		"of a cluster's own identity": {"", []string{"get namespaces kube-system", "get namespaces other"}, nil, []string{"get namespaces", "get namespaces kube-system"}, nil},
		"in the whole cluster for one namespace": {
			wide, all, nil, nil,
			[]string{
				"get configmaps, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"list pods, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"get secrets, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"get deployments.apps, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"list deployments.apps, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"watch deployments.apps, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
				"patch deployments.apps, of the ClusterRole p: it is given in the whole cluster, and was asked for in the namespace default alone",
			},
		},
		"stars": {
			clusterRole(`{apiGroups: ["*"], resources: [pods], verbs: ["*"]}`),
			[]string{"list pods", "get pods a in b"},
			nil, nil,
			[]string{"* pods.*, of the ClusterRole r: of all that it gives, asked for was: list pods, get pods in b"},
		},
		"stars that are declared": {clusterRole(`{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`), nil, []string{"* *.*"}, nil, nil},
		"all namespaces for the identity": {
			clusterRole(`{apiGroups: [""], resources: [namespaces], verbs: [get]}`),
			[]string{"get namespaces kube-system"},
			nil, nil,
			[]string{"get namespaces, of the ClusterRole r: it is given for all names, and was asked for kube-system alone"},
		},
		"names": {
			clusterRole(`{apiGroups: [""], resources: [secrets], resourceNames: [a, b], verbs: [get]}`),
			[]string{"get secrets a in x", "get secrets c in x", "get secrets a in y"},
			nil,
			[]string{"get secrets in x"},
			[]string{"get secrets b, of the ClusterRole r: nobody has asked for it"},
		},
		"twice": {
			clusterRole(`{apiGroups: [""], resources: [pods], verbs: [list]}`) + "---\n" + byHand, append([]string{"list pods"}, all...), nil, nil,
			[]string{"list pods in default, of the Role p: the ClusterRole r gives it too"},
		},
		"paths": {
			clusterRole(`{nonResourceURLs: [/metrics, /other], verbs: [get]}`),
			[]string{"get /metrics", "get /debug"},
			nil,
			[]string{"get /debug"},
			[]string{"get /other, of the ClusterRole r: nobody has asked for it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustParse(t, tc.file)
			d := Demand{Asked: parseAll(t, tc.asked), Needed: parseAll(t, tc.needed)}
			var missing []string
			for _, r := range f.Missing(d) {
				missing = append(missing, r.String())
			}
			if diff := cmp.Diff(tc.missing, missing); diff != "" {
				t.Errorf("missing differs (-want, +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.much, f.TooMuch(d)); diff != "" {
				t.Errorf("too much differs (-want, +got):\n%s", diff)
			}
			// What is updated needs no update.
			if err := f.Update(d, true, "r"); err != nil {
				t.Fatal(err)
			}
			again := mustParse(t, string(f.Bytes()))
			if m, much := again.Missing(d), again.TooMuch(d); len(m)+len(much) > 0 {
				t.Errorf("still missing: %q; still too much: %q; in\n%s", m, much, f.Bytes())
			}
		})
	}
}

func TestWhatNeedNotChangeStaysAsItWasWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		asked   []string
		replace []string // pairs
	}{
		"nothing changes":             {all, nil},
		"a verb goes":                 {all[1:], []string{"[get, list, watch, patch]", "[list, watch, patch]"}},
		"a verb comes":                {append([]string{"delete deployments.apps a in default"}, all...), []string{"[get, list, watch, patch]", "[get, list, watch, patch, delete]"}},
		"a rule goes, with its words": {all[4:], []string{"# The finalizer is set with a patch.\n- apiGroups: [apps]\n  resources: [deployments] # of the user\n  verbs: [get, list, watch, patch] # patch: the finalizer\n", ""}},
		"a rule is split": {
			append([]string{"list secrets in default"}, all...),
			[]string{"  verbs: [list]\n", "  verbs: [list]\n- apiGroups: [\"\"]\n  resources: [secrets]\n  verbs: [list]\n"},
		},
		"a resource goes": {
			append(all[:4:4], all[5:]...),
			[]string{"\n- apiGroups:\n  - \"\"\n  resources:\n  - configmaps\n  - secrets\n  verbs:\n  - get\n", "\n- apiGroups: [\"\"]\n  resources: [secrets]\n  verbs: [get]\n"},
		},
		"another namespace": {
			append([]string{"list pods in other"}, all...),
			[]string{"name: p, namespace: fleet}]\n", `name: p, namespace: fleet}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  namespace: other
  name: p
rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  namespace: other
  name: p
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: p
subjects:
- kind: ServiceAccount
  namespace: fleet
  name: p
`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustParse(t, byHand)
			if err := f.Update(Demand{Asked: parseAll(t, tc.asked)}, true, ""); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.NewReplacer(tc.replace...).Replace(byHand), string(f.Bytes())); diff != "" {
				t.Errorf("the file differs (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestManifestsOfStrangers are refused, or not touched.
func TestManifestsOfStrangers(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"no YAML":          {"a: [", "document 1"},
		"no object":        {"- a\n", "no object"},
		"no kind":          {"a: b\n", "Kind"},
		"binary":           {"\x00\xff\x01", "document 1"},
		"aliases":          {"apiVersion: v1\nkind: X\na: &a [b]\nc: [*a, *a]\n", "aliases"},
		"an alias of all":  {"apiVersion: v1\nkind: X\na: &a\n  b: *a\n", "aliases"},
		"too long":         {strings.Repeat("#\n", 1<<20), "bytes"},
		"a list":           {"apiVersion: v1\nkind: List\nitems: []\n", "documents of their own"},
		"far too deep":     {"apiVersion: v1\nkind: X\na: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "document 1"},
		"billions":         {clusterRole(`{apiGroups: [` + strings.Repeat("a,", 9000) + `a], resources: [` + strings.Repeat("a,", 9000) + `a], verbs: [` + strings.Repeat("a,", 9000) + `a]}`), "more than"},
		"a second account": {byHand + "---\n" + strings.ReplaceAll(byHand, "name: p", "name: q"), "ServiceAccounts p and q"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse([]byte(tc.file))
			if err == nil {
				_, err = f.Account()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want one that says %q", err, tc.want)
			}
		})
	}
	for name, file := range map[string]string{
		"lists over lines":   clusterRole("\n  apiGroups: ['',\n    apps\n  ]\n  resources: [pods,\n    secrets\n  ]\n  verbs: [get,\n    list\n  ]\n- {apiGroups: [''], resources: [nodes], verbs: [get]}"),
		"Windows":            strings.ReplaceAll(byHand, "\n", "\r\n"),
		"no end of line":     strings.TrimSuffix(byHand, "\n"),
		"one line":           `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}`,
		"no rules":           "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}",
		"rules that are nil": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nrules:\nmetadata: {name: r}\n",
		"comments alone":     "# nothing\n---\n# nothing\n---\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := mustParse(t, file)
			d := Demand{Asked: parseAll(t, []string{"watch nodes", "get secrets a in default", "list pods in default"})}
			if err := f.Update(d, true, "new"); err != nil {
				if !strings.Contains(err.Error(), "by hand") || string(f.Bytes()) != file {
					t.Errorf("the error is %v, and the file is\n%s", err, f.Bytes())
				}
				return
			}
			again := mustParse(t, string(f.Bytes()))
			if m, much := again.Missing(d), again.TooMuch(d); len(m)+len(much) > 0 {
				t.Errorf("still missing: %q; still too much: %q; in\n%s", m, much, f.Bytes())
			}
		})
	}
}

// FuzzUpdate: whatever a manifest looks like, an update makes it give what is needed, or leaves it as it was and says so.
func FuzzUpdate(f *testing.F) {
	manifests, err := filepath.Glob("../../../examples/*/rbac/*.yaml")
	if err != nil || len(manifests) == 0 {
		f.Fatal(manifests, err)
	}
	for _, path := range manifests {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content), "get pods a in b", "watch secrets in fleet")
	}
	f.Add(byHand, "list pods", "get /metrics")
	f.Fuzz(func(t *testing.T, content, one, two string) {
		file, err := Parse([]byte(content))
		if err != nil {
			return
		}
		if string(file.Bytes()) != content {
			t.Fatal("what is read is not what was written")
		}
		var d Demand
		for _, text := range []string{one, two} {
			if r, err := rights.Parse(text); err == nil && !strings.Contains(text, "*") {
				d.Asked = append(d.Asked, r)
			}
		}
		if file.Update(d, true, "r") != nil {
			return
		}
		again, err := Parse(file.Bytes())
		if err != nil {
			t.Fatalf("the file cannot be read any more: %v\n%s", err, file.Bytes())
		}
		if m := again.Missing(d); len(m) > 0 {
			t.Errorf("still missing: %q, in\n%s", m, file.Bytes())
		}
	})
}

func clusterRole(rule string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules:\n- " + strings.TrimPrefix(rule, "\n  ") + "\n"
}

func mustParse(t *testing.T, content string) *File {
	t.Helper()
	f, err := Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func parseAll(t *testing.T, texts []string) []rights.Right {
	t.Helper()
	all := make([]rights.Right, 0, len(texts))
	for _, text := range texts {
		r, err := rights.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}
