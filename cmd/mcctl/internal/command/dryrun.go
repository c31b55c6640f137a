package command

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// asJSON is how a format is called, here and by managers.
const asJSON = "json"

// dryRun is what --dry-run and -o say, which have the meaning that they have for kubectl.
type dryRun struct{ mode, output string }

func (d *dryRun) addFlags(to *pflag.FlagSet) {
	to.StringVar(&d.mode, "dry-run", "none", `"none", "client" or "server". With client nothing is asked of any server; with server each is asked what it would do`)
	to.StringVarP(&d.output, "output", "o", "", "With --dry-run=client, the format of what is printed: yaml (the default) or json")
}

func (d *dryRun) client() bool { return d.mode == "client" }
func (d *dryRun) server() bool { return d.mode == "server" }

func (d *dryRun) validate() error {
	switch {
	case d.mode != "none" && !d.client() && !d.server():
		return usageError(`--dry-run is one of "none", "client" and "server", not %q`, d.mode)
	case d.output != "" && !d.client():
		return usageError("-o says how --dry-run=client prints, and is of no use without it")
	case d.output != "" && d.output != "yaml" && d.output != asJSON:
		return usageError("-o is yaml or json, not %q", d.output)
	default:
		return nil
	}
}

// print prints what would be applied on each side for a member.
func (d *dryRun) print(to io.Writer, of client.ObjectKey, member, hub []client.Object) error {
	var printer printers.ResourcePrinter = &printers.YAMLPrinter{}
	if d.output == asJSON {
		printer = &printers.JSONPrinter{}
	}
	for _, part := range []struct {
		side    string
		objects []client.Object
	}{{memberSide, member}, {hubSide, hub}} {
		for _, obj := range part.objects {
			desired, err := applied(obj)
			if err != nil {
				return err
			}
			annotations := desired.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[sideAnnotation] = part.side
			desired.SetAnnotations(annotations)
			if part.side == memberSide {
				desired.SetLabels(labels.Merge(desired.GetLabels(), memberLabels(of)))
			}
			if err := printer.PrintObj(desired, to); err != nil {
				return fmt.Errorf("print %s: %w", describe(obj), err)
			}
		}
	}
	return nil
}

// sideAnnotation says in what is printed where an object belongs: hub or member.
const sideAnnotation = "access.fleet-runtime.dev/side"
