package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"golang.org/x/mod/modfile"
)

// describe writes which modules a program is made of, in the form of SPDX 2.3: Go writes them into each program.
func (r release) describe(p program, on platform, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path) //nolint:gosec // built above
	if err != nil {
		return err
	}
	document := r.document(p, on)
	main := &v2_3.Package{
		PackageName: p.name, PackageSPDXIdentifier: "Package-" + common.ElementID(p.name), PackageVersion: r.version,
		PackageDownloadLocation: "NOASSERTION", PrimaryPackagePurpose: "APPLICATION",
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
	}
	document.Packages = []*v2_3.Package{main}
	document.Relationships = []*v2_3.Relationship{relation("DOCUMENT", "DESCRIBES", main.PackageSPDXIdentifier)}
	for _, dependency := range append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...) {
		of := module(r.origin(dependency))
		document.Packages = append(document.Packages, of)
		document.Relationships = append(document.Relationships, relation(main.PackageSPDXIdentifier, "CONTAINS", of.PackageSPDXIdentifier))
	}
	return create(r.file(p, on, ".spdx.json"), func(w io.Writer) error { return json.Write(document, w, json.Indent("  ")) })
}

// document is one without packages. Its name space differs for each file, and is the same whenever that is made.
func (r release) document(p program, on platform) *v2_3.Document {
	name := fmt.Sprintf("%s-%s-%s", p.name, r.version, on)
	return &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: fmt.Sprintf("https://fleet-runtime.dev/spdx/%s-%d", name, r.made.Unix()),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "fleet-runtime-release"}},
			Created:  r.made.Format(time.RFC3339),
		},
	}
}

// origin is the module that a dependency was really taken from. One that was taken from a folder is of this repository, and so of
// this release.
func (r release) origin(m *debug.Module) *debug.Module {
	switch {
	case m.Replace == nil:
		return m
	case modfile.IsDirectoryPath(m.Replace.Path):
		return &debug.Module{Path: m.Path, Version: r.version}
	default:
		return m.Replace
	}
}

// notInIDs are the characters that SPDX forbids in identifiers.
var notInIDs = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// module is the package of one of Go's modules.
func module(m *debug.Module) *v2_3.Package {
	return &v2_3.Package{
		PackageName: m.Path, PackageVersion: m.Version, PackageDownloadLocation: "NOASSERTION",
		PackageSPDXIdentifier: "Module-" + common.ElementID(notInIDs.ReplaceAllString(m.Path+"-"+m.Version, "-")),
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: locator(m),
		}},
	}
}

func relation(a common.ElementID, kind string, b common.ElementID) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA: common.MakeDocElementID("", string(a)), Relationship: kind, RefB: common.MakeDocElementID("", string(b)),
	}
}

// locator is the module's package URL. The library of Go has a name of its own there, by which its faults are found.
func locator(m *debug.Module) string {
	if m.Path == "std" {
		return "pkg:golang/stdlib@" + strings.TrimPrefix(m.Version, "go")
	}
	return "pkg:golang/" + m.Path + "@" + url.QueryEscape(m.Version) // some versions have a +
}
