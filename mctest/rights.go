package mctest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
	"github.com/fleet-runtime/fleet-runtime/mctest/internal/rbacfile"
)

// Rights are those of one account of a program under test: the manifest that gives them, and what tests cannot show. Rights are
// written as messages show them: "list deployments.apps in default", "get namespaces kube-system", "patch foos.example.com/status".
type Rights struct {
	// File is the path of a manifest with Roles and ClusterRoles, from the folder of the test. If there is a ServiceAccount in it,
	// this is the account, and it has the rights that the manifest binds to it. Otherwise the roles are bound to an account of the
	// test's own.
	File string
	// Needed are rights that the tests do not ask for, and their reasons. Without a namespace, they are for those in which the
	// manifest gives them.
	Needed map[string]string
	// Refused are rights that are asked for and not given on purpose, and their reasons. Without a namespace, they are for all.
	Refused map[string]string
}

const howToUpdate = "MCTEST_RIGHTS=update changes the file; Rights.Needed and Rights.Refused are for what tests cannot show."

// updatesRights reports whether manifests are changed.
func updatesRights() bool { return os.Getenv("MCTEST_RIGHTS") == "update" }

// declared is what Rights say.
type declared struct {
	path            string // absolute
	file            *rbacfile.File
	needed, refused []rights.Right
}

func declare(r Rights) (declared, error) {
	path, err := filepath.Abs(r.File)
	if err != nil {
		return declared{}, err
	}
	d := declared{path: path}
	if d.file, err = readRights(path); err == nil {
		d.needed, err = parseRights("Needed", r.Needed)
	}
	if err == nil {
		d.refused, err = parseRights("Refused", r.Refused)
	}
	if err != nil {
		return d, fmt.Errorf("recording the rights of %s: %w", r.File, err)
	}
	return d, nil
}

// readRights reads a manifest. One that is to be written may be absent.
func readRights(path string) (*rbacfile.File, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the test names it
	if errors.Is(err, os.ErrNotExist) && updatesRights() {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; MCTEST_RIGHTS=update writes it", err)
	}
	return rbacfile.Parse(content)
}

func parseRights(field string, texts map[string]string) ([]rights.Right, error) {
	var all []rights.Right
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		r, err := rights.Parse(text)
		if err == nil && strings.TrimSpace(texts[text]) == "" {
			err = fmt.Errorf("the right %q has no reason", text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func (d declared) demand(asked []rights.Right) rbacfile.Demand {
	return rbacfile.Demand{Asked: asked, Needed: d.needed}
}

func lines[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = "\t" + one.String()
	}
	return strings.Join(texts, "\n")
}
