package rbacfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// Demand is what an account needs.
type Demand struct {
	// Asked is what was asked for.
	Asked []rights.Right
	// Needed is what was declared beside it. One without a namespace is for those in which the manifest gives it.
	Needed []rights.Right
}

// identity is the object by whose UID a cluster is told from another. No other is known to be asked for by its name.
var identity = rights.Right{Verb: "get", Resource: "namespaces", Name: "kube-system"}

// asWritten returns the right that a rule would give for what was asked for: for all names, since names that tests choose mean
// nothing.
func asWritten(asked rights.Right) rights.Right {
	if asked != identity {
		asked.Name = ""
	}
	return asked
}

// Missing returns what is needed and not given, as rules would give it, sorted.
func (f *File) Missing(d Demand) []rights.Right {
	given := f.given()
	missing := rights.Missing(given, d.Asked)
	for i := range missing {
		missing[i] = asWritten(missing[i])
	}
	for _, n := range d.Needed {
		if !slices.ContainsFunc(given, func(g rights.Right) bool { return g.Covers(n) || n.Covers(g) }) {
			missing = append(missing, n)
		}
	}
	return rights.Missing(nil, missing)
}

func (f *File) given() []rights.Right {
	var all []rights.Right
	for _, g := range f.grants {
		all = append(all, g.Rights()...)
	}
	return all
}

// TooMuch says what is given and not needed, line by line.
func (f *File) TooMuch(d Demand) []string {
	var lines []string
	for _, g := range f.grants {
		for _, r := range rights.Of("", g.Rules...) {
			if why := f.tooMuch(d, g, r); why != "" {
				lines = append(lines, fmt.Sprintf("%s, of the %s %s: %s", placed(r, g), g.Kind, g.Name, why))
			}
		}
	}
	return lines
}

// placed returns the right where the grant gives it, for people.
func placed(r rights.Right, g grant) string {
	if slices.Equal(g.In, []string{""}) {
		return r.String()
	}
	return r.String() + " in " + strings.Join(g.In, ", ")
}

// tooMuch says why a right that a grant gives need not be given there, and nothing if it must.
func (f *File) tooMuch(d Demand, g grant, r rights.Right) string {
	var used []rights.Right
	for _, namespace := range g.In {
		r.Namespace = namespace
		if slices.ContainsFunc(d.Needed, func(n rights.Right) bool { return n.Covers(r) }) {
			return ""
		}
		for _, asked := range d.Asked {
			if r.Covers(asked) {
				used = append(used, asked)
			}
		}
	}
	if len(used) == 0 {
		return "nobody has asked for it"
	}
	if slices.Contains([]string{r.Verb, r.Group, r.Resource}, rights.All) || strings.HasSuffix(r.URL, rights.All) {
		return "of all that it gives, asked for was: " + list(used)
	}
	if len(g.In) == 1 && r.Namespace == "" {
		if only, ok := onlyNamespace(used); ok {
			return "it is given in the whole cluster, and was asked for in the namespace " + only + " alone"
		}
	}
	if named := identity; r.Name == "" && len(rights.Missing([]rights.Right{named}, used)) == 0 {
		return "it is given for all names, and was asked for " + named.Name + " alone"
	}
	return f.givenTwice(g, r)
}

// onlyNamespace returns the namespace that all of them are in, if there is one.
func onlyNamespace(all []rights.Right) (string, bool) {
	only := all[0].Namespace
	return only, only != "" && !slices.ContainsFunc(all, func(r rights.Right) bool { return r.Namespace != only })
}

// givenTwice says that another rule gives the right as well: one that gives more or, of equal ones, the first.
func (f *File) givenTwice(g grant, r rights.Right) string {
	if len(g.In) != 1 {
		return ""
	}
	for i, other := range f.grants {
		for _, o := range other.Rights() {
			isBefore := i < slices.IndexFunc(f.grants, func(one grant) bool { return one.document == g.document })
			if o.Covers(r) && (!r.Covers(o) || isBefore) {
				return fmt.Sprintf("the %s %s gives it too", other.Kind, other.Name)
			}
		}
	}
	return ""
}

// list names rights in one line.
func list(all []rights.Right) string {
	const most = 10
	for i := range all {
		all[i] = asWritten(all[i])
	}
	all = rights.Missing(nil, all)
	texts := make([]string, 0, most)
	for _, r := range all[:min(most, len(all))] {
		texts = append(texts, r.String())
	}
	if len(all) > most {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(texts, ", ")
}
