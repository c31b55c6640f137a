// Command hack writes the reference of the fields of a Replicator, from its CRD: go run ./hack > reference.md.
package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

func main() {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(v1alpha1.CRD()), crd); err != nil {
		log.Fatal(err)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	_, err := io.WriteString(os.Stdout, "# Fields of a Replicator\n\nWritten by `go run ./hack`, from the CRD.\n")
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range []string{"spec", "status"} {
		fmt.Printf("\n| field | type | |\n|---|---|---|\n")
		rows(part, schema.Properties[part])
	}
}

// rows writes a row for each field below a path.
func rows(path string, of apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		field := of.Properties[name]
		kind := field.Type
		in, below := field, path+"."+name
		if field.Items != nil && field.Items.Schema != nil {
			in, below = *field.Items.Schema, below+"[]"
			kind = "list of " + in.Type
		}
		if field.XIntOrString {
			kind = "number or string"
		}
		text := strings.Join(strings.Fields(field.Description), " ")
		if field.Default != nil {
			text += " Default: " + string(field.Default.Raw) + "."
		}
		if slices.Contains(of.Required, name) {
			text += " Required."
		}
		fmt.Printf("| %s | %s | %s |\n", path+"."+name, kind, strings.TrimSpace(strings.ReplaceAll(text, "|", "\\|")))
		if !isKnown(name) {
			rows(below, in)
		}
	}
}

// isKnown reports whether a field is of a type that Kubernetes' own reference has.
func isKnown(name string) bool { return name == "selector" || name == "conditions" }
