// Package command holds the commands of mcctl, one file each.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Codes that mcctl exits with.
const (
	codeOK       = 0
	codeFailed   = 1 // what was asked for was not done, or not wholly
	codeUsage    = 2 // the command line is wrong; nothing was done
	codeNotReady = 3 // the member is there, and is not Ready
)

// Run runs mcctl with its command line, which begins with the path of the program, and returns the code to exit with. ctx ends what it waits
// for. The version is that of a release, and empty for what was built otherwise.
func Run(ctx context.Context, version string, args []string, streams genericiooptions.IOStreams) int {
	name := newCallName(args[0])
	root := newRoot(name, version, streams)
	root.SetArgs(args[1:])
	begun := false
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	err := root.ExecuteContext(ctx)
	if err == nil {
		return codeOK
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
	case begun:
		exit = &exitError{code: codeFailed, err: err}
	default: // no command was found, or it does not take these flags and arguments
		err = fmt.Errorf("%w; see %s --help", err, name)
		exit = &exitError{code: codeUsage, err: err}
	}
	if exit.err != nil {
		tellf(streams.ErrOut, "%s: %s\n", string(name), name.in(err.Error()))
	}
	return exit.code
}

// exitError is an error with a code of its own. Without an error, all was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError says what is wrong with the command line.
func usageError(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

func newRoot(name callName, version string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   ownName,
		Short: "Join clusters to a fleet, see how they are, and let them leave",
		Long: `mcctl works on a fleet of fleet-runtime by its hub, the cluster that the managers run against.

The hub is that of the current context, or of --context. Commands that go to a member too take the member's way from flags of the
same names with the prefix --member-.

Exit codes: 0 done; 1 not done, or not wholly; 2 the command line is wrong, and nothing was done; 3 the member is not Ready.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetHelpCommand(newHelp(root))
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: string(name)}
	hub := newSide(hubSide)
	hub.addFlags(root.PersistentFlags())
	s := &shared{hub: hub, streams: streams, name: name}
	root.AddCommand(
		newJoin(s), newLeave(s), newList(s), newDescribe(s), newCheck(s), newRBAC(s), newShards(s), newToken(s), newFederate(s), newVersion(s, version),
	)
	root.AddCommand(newControls(s)...)
	for _, c := range append(root.Commands(), root) {
		s.complete(c)
		c.Long, c.Example = name.in(c.Long), name.in(c.Example)
	}
	if err := root.RegisterFlagCompletionFunc("context", contextsIn("kubeconfig")); err != nil {
		panic(err) // there is no such flag
	}
	checkShell(root)
	return root
}

// tellf writes text for people, in which the arguments cannot move a cursor. That it cannot be written changes nothing about what was done.
func tellf(to io.Writer, format string, args ...any) {
	shown := make([]any, len(args))
	for i, arg := range args {
		switch text := arg.(type) {
		case error:
			shown[i] = legible(text.Error())
		case fmt.Stringer:
			shown[i] = legible(text.String())
		case string:
			shown[i] = legible(text)
		default:
			shown[i] = arg
		}
	}
	_, _ = fmt.Fprintf(to, format, shown...)
}

// legible returns text that may be of strangers without what moves a cursor, colours a terminal or turns the direction of writing. Lines
// stay, but none is taken for one that begins here: those after the first are indented.
func legible(text string) string {
	shown := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, text)
	lines := strings.Split(shown, "\n")
	for i, line := range lines {
		if i > 0 && line != "" && line[0] != ' ' && line[0] != '\t' {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}

// shared is what all commands have.
type shared struct {
	hub     *side
	streams genericiooptions.IOStreams
	name    callName
}
