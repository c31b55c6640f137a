package demo

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// screen is where the user looks. Its methods are safe for concurrent use.
type screen interface {
	// say prints sentences.
	say(text string)
	// show shows the table as it is now.
	show(rows []row)
	// settle leaves the table as it was shown last.
	settle()
}

// newScreen returns a terminal, or for everything else plain lines.
func newScreen(out *os.File) screen {
	fd := int(out.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return &plain{out: out, shown: map[fleet.ClusterName]row{}}
	}
	return &terminal{out: out, size: func() (width, height int, err error) { return term.GetSize(fd) }}
}

// plain prints each row as a line whenever it is another than before.
type plain struct {
	out io.Writer

	mu    sync.Mutex // guards shown and the order of what is written
	shown map[fleet.ClusterName]row
}

func (p *plain) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintln(p.out, text) // a reader that goes away is no reason to stop
}

func (p *plain) show(rows []row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return p.shown[r.name] == r })
	slices.SortFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	for _, r := range rows {
		p.shown[r.name] = r
		_, _ = fmt.Fprintln(p.out, line(r))
	}
}

func (p *plain) settle() {}

// terminal draws the table below all sentences, and draws it again in its place.
type terminal struct {
	out  io.Writer
	size func() (width, height int, err error)

	mu    sync.Mutex // guards what follows and the order of what is written
	rows  []row
	drawn int // how many lines of the table are above the cursor
}

func (t *terminal) say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drawLocked(text + "\n")
}

func (t *terminal) show(rows []row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = rows
	t.drawLocked("")
}

func (t *terminal) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows, t.drawn = nil, 0
}

const (
	upLines    = "\x1b[%dA"
	clearBelow = "\x1b[J"
)

// drawLocked puts the text in the place of the table, and the table below it. It writes once, so that nothing flickers.
func (t *terminal) drawLocked(text string) {
	width, height, err := t.size()
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	frame := &strings.Builder{}
	if t.drawn > 0 {
		fmt.Fprintf(frame, "\r"+upLines+clearBelow, t.drawn)
	}
	frame.WriteString(text)
	lines := table(t.rows, width-1)
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	lines = lines[:min(len(lines), height-1)] // what has left the screen could not be drawn again
	for _, line := range lines {
		frame.WriteString(line + "\n")
	}
	t.drawn = len(lines)
	_, _ = io.WriteString(t.out, frame.String())
}
