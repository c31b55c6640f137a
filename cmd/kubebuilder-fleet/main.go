// Command kubebuilder-fleet is a plugin for kubebuilder v4. It scaffolds operators that run against every cluster of a fleet,
// and moves those that there are. It is put where kubebuilder looks for it by
//
//	go run github.com/fleet-runtime/fleet-runtime/cmd/kubebuilder-fleet@latest install
//
// and named when a project begins, after kubebuilder's own plugin for Go:
//
//	kubebuilder init --plugins go/v4,fleet.fleet-runtime.dev/v1 …
//
// kubebuilder runs it without arguments, with a request in JSON on standard input, and reads the answer from standard output.
// What is left to a person goes to standard error, which kubebuilder passes on to the terminal.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "kubebuilder-fleet: %v\n", err)
		os.Exit(1)
	}
}

const usage = `kubebuilder-fleet is a plugin for kubebuilder v4, which runs it.

  kubebuilder-fleet install   put it where kubebuilder looks for plugins
  kubebuilder-fleet version   print its version

  kubebuilder init --plugins go/v4,` + pluginKey + ` ...
  kubebuilder edit --plugins ` + pluginKey + `
`

func run(args []string, in io.Reader, out, log io.Writer) error {
	if len(args) == 0 {
		if isTerminal(in) {
			_, err := io.WriteString(out, usage)
			return err
		}
		return serve(in, out, log)
	}
	switch args[0] {
	case "install":
		path, err := install()
		if err == nil {
			_, err = fmt.Fprintln(out, path)
		}
		return err
	case "version":
		_, err := fmt.Fprintln(out, version())
		return err
	case "help", "-h", "--help":
		_, err := io.WriteString(out, usage)
		return err
	default:
		return errors.New("there is no command " + args[0] + "\n" + usage)
	}
}

// isTerminal tells whether a person is there, and not kubebuilder.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
