// Package rbacfile compares what a manifest of RBAC gives with what is asked for, and changes the manifest by hand's breadth: what
// need not change stays as it was written.
package rbacfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// mostBytes is how long a manifest may be. Those of people have a few thousand.
const mostBytes = 1 << 20

// File is a manifest.
type File struct {
	documents []*document
	grants    []grant
}

// grant is a role, and the document that it is in.
type grant struct {
	rights.Grant

	document *document
}

// document is one of a manifest.
type document struct {
	text   string // with the line that separates it from the one before
	node   *yamlv3.Node
	object *unstructured.Unstructured // nil: there are comments alone
}

// Parse reads a manifest. An empty one gives nothing.
func Parse(content []byte) (*File, error) {
	if len(content) > mostBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(content), mostBytes)
	}
	f := &File{}
	for i, text := range split(string(content)) {
		d, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		f.documents = append(f.documents, d)
	}
	return f, f.readGrants()
}

// split splits a stream of documents. Together they are what it was.
func split(content string) []string {
	var documents []string
	begun := 0
	at := 0
	for line := range strings.Lines(content) {
		if strings.HasPrefix(line, "---") && at > begun {
			documents = append(documents, content[begun:at])
			begun = at
		}
		at += len(line)
	}
	if begun < len(content) {
		documents = append(documents, content[begun:])
	}
	return documents
}

func parse(text string) (*document, error) {
	d := &document{text: text}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return d, nil
	}
	if hasAlias(&root) {
		return nil, errors.New("it has YAML aliases (*name), which may stand for more than one sees: write out what they stand for")
	}
	if d.node = root.Content[0]; d.node.Kind != yamlv3.MappingNode {
		return nil, errors.New("it is no object of Kubernetes")
	}
	content, err := yaml.ToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	d.object = &unstructured.Unstructured{}
	if err := d.object.UnmarshalJSON(content); err != nil {
		return nil, err
	}
	if d.object.IsList() {
		return nil, fmt.Errorf("it is a %s: write its items as documents of their own", d.object.GetKind())
	}
	return d, nil
}

func hasAlias(node *yamlv3.Node) bool {
	return node.Kind == yamlv3.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

func (f *File) readGrants() error {
	f.grants = nil
	all, err := rights.Grants(f.Objects())
	if err != nil {
		return err
	}
	for _, g := range all {
		for _, d := range f.documents {
			if o := d.object; o != nil && o.GetKind() == g.Kind && o.GetNamespace() == g.Namespace && o.GetName() == g.Name {
				f.grants = append(f.grants, grant{g, d})
				break
			}
		}
	}
	return nil
}

// Objects returns what is in the manifest.
func (f *File) Objects() []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, d := range f.documents {
		if d.object != nil {
			objects = append(objects, d.object)
		}
	}
	return objects
}

// Account returns the ServiceAccount of the manifest, nil if there is none.
func (f *File) Account() (*unstructured.Unstructured, error) {
	var account *unstructured.Unstructured
	for _, obj := range f.Objects() {
		if obj.GetKind() != "ServiceAccount" {
			continue
		}
		if account != nil {
			return nil, fmt.Errorf("it has the ServiceAccounts %s and %s: rights are recorded of one", account.GetName(), obj.GetName())
		}
		account = obj
	}
	if account != nil && account.GetNamespace() == "" {
		return nil, fmt.Errorf("the ServiceAccount %s has no namespace: write it down", account.GetName())
	}
	return account, nil
}

// Grants returns the roles of the manifest.
func (f *File) Grants() []rights.Grant {
	all := make([]rights.Grant, len(f.grants))
	for i, g := range f.grants {
		all[i] = g.Grant
	}
	return all
}

// Bytes returns the manifest as it is now.
func (f *File) Bytes() []byte {
	var all strings.Builder
	for _, d := range f.documents {
		all.WriteString(d.text)
	}
	return []byte(all.String())
}
