package command

import (
	"io"
	"os"

	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// progress says what becomes of each step. On a terminal the step that runs is shown too, and its line replaced when it is done.
type progress struct {
	to       io.Writer
	terminal bool
}

func newProgress(to io.Writer) progress {
	file, ok := to.(*os.File)
	return progress{to: to, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// step runs one step, which says what became of it.
func (p progress) step(what string, run func() (result string, err error)) error {
	if p.terminal {
		tellf(p.to, "… %s", what)
	}
	result, err := run()
	if p.terminal {
		tellf(p.to, "\r\x1b[K")
	}
	if err != nil {
		tellf(p.to, "%s: failed\n", what)
		return err
	}
	tellf(p.to, "%s: %s\n", what, result)
	return nil
}

// kept names what is not removed.
func (p progress) kept(in *reached, objects []client.Object) {
	for _, obj := range objects {
		p.keep(in, obj, "others have made it")
	}
}

// keep says why an object is not removed.
func (p progress) keep(in *reached, obj client.Object, why string) {
	tellf(p.to, "%s: %s: kept, since %s\n", in.name, describe(obj), why)
}
