package rbacfile

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// Update adds what is missing and, if it may, takes away what is too much. What is missing in one namespace goes into a Role there,
// other things into a ClusterRole: roles that there are, or new ones of the given name if the manifest has none at all.
func (f *File) Update(d Demand, mayTake bool, name string) error {
	const most = 4 // one round adds, the next takes away what that has made needless
	for range most {
		var changed bool
		if mayTake {
			took, err := f.takeAway(d)
			if err != nil {
				return err
			}
			changed = took
		}
		if missing := f.Missing(d); len(missing) > 0 {
			changed = true
			if err := f.add(missing, name); err != nil {
				return err
			}
		}
		if !changed {
			break
		}
	}
	return nil
}

// takeAway takes away what is too much. One role is changed at a time, as two may give the same.
func (f *File) takeAway(d Demand) (took bool, err error) {
	for i := range f.grants {
		g := f.grants[i]
		keep := func(r rights.Right) bool { return f.tooMuch(d, g, r) == "" }
		if all := rights.Of("", g.Rules...); !slices.ContainsFunc(all, func(r rights.Right) bool { return !keep(r) }) {
			continue
		}
		if err := g.document.edit(g.Rules, keep, nil); err != nil {
			return took, err
		}
		took = true
		if err := f.readGrants(); err != nil {
			return took, err
		}
	}
	return took, nil
}

// add adds rights to the roles where they belong.
func (f *File) add(missing []rights.Right, name string) error {
	for _, target := range f.targets(missing) {
		g, ok := f.grantIn(target.namespace)
		if !ok {
			if err := f.addRole(target.namespace, f.nameOr(name)); err != nil {
				return err
			}
			g, _ = f.grantIn(target.namespace)
		}
		all := func(rights.Right) bool { return true }
		if err := g.document.edit(g.Rules, all, target.rights); err != nil {
			return err
		}
		if err := f.readGrants(); err != nil {
			return err
		}
	}
	return nil
}

// target is what is to be added in one namespace, or in the whole cluster.
type target struct {
	namespace string
	rights    []rights.Right
}

// targets says what goes where: into a Role if it is asked for in one namespace, or in such as have a Role each.
func (f *File) targets(missing []rights.Right) []target {
	in := map[rights.Right][]string{}
	for _, r := range missing {
		anywhere := r
		anywhere.Namespace = ""
		in[anywhere] = append(in[anywhere], r.Namespace)
	}
	byNamespace := map[string][]rights.Right{}
	for r, namespaces := range in {
		hasAll := !slices.ContainsFunc(namespaces, func(n string) bool { _, ok := f.grantIn(n); return !ok })
		if slices.Contains(namespaces, "") || len(namespaces) > 1 && !hasAll {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			byNamespace[namespace] = append(byNamespace[namespace], r)
		}
	}
	all := make([]target, 0, len(byNamespace))
	for namespace, these := range byNamespace {
		all = append(all, target{namespace, these})
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.namespace, b.namespace) })
	return all
}

// grantIn returns the first role that holds in a namespace alone, or in the whole cluster if it is empty.
func (f *File) grantIn(namespace string) (grant, bool) {
	i := slices.IndexFunc(f.grants, func(g grant) bool { return slices.Equal(g.In, []string{namespace}) })
	if i < 0 {
		return grant{}, false
	}
	return f.grants[i], true
}

// nameOr returns the name of the roles in the manifest, or that of its account. If it has neither, it is the given one.
func (f *File) nameOr(name string) string {
	if len(f.grants) > 0 {
		return f.grants[0].Name
	}
	if account, err := f.Account(); err == nil && account != nil {
		return account.GetName()
	}
	return name
}

// addRole adds a role without rules, and binds it to the account of the manifest if there is one.
func (f *File) addRole(namespace, name string) error {
	kind, in := "ClusterRole", ""
	if namespace != "" {
		kind, in = "Role", "  namespace: "+quote(namespace)+"\n"
	}
	texts := []string{fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n%s  name: %s\nrules: []\n", rbacv1.SchemeGroupVersion, kind, in, quote(name))}
	account, err := f.Account()
	if err != nil {
		return err
	}
	if account != nil {
		texts = append(texts, fmt.Sprintf(`apiVersion: %s
kind: %sBinding
metadata:
%s  name: %s
roleRef:
  apiGroup: %s
  kind: %s
  name: %s
subjects:
- kind: ServiceAccount
  namespace: %s
  name: %s
`, rbacv1.SchemeGroupVersion, kind, in, quote(name), rbacv1.GroupName, kind, quote(name), quote(account.GetNamespace()), quote(account.GetName())))
	}
	for _, text := range texts {
		if n := len(f.documents); n > 0 {
			last := f.documents[n-1]
			if !strings.HasSuffix(last.text, "\n") {
				last.text += "\n"
			}
			text = "---\n" + text
		}
		d, err := parse(text)
		if err != nil {
			return err
		}
		f.documents = append(f.documents, d)
	}
	return f.readGrants()
}
