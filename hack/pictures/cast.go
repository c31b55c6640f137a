package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/hinshun/vt10x"
)

// drawCast makes a picture that moves of a recording of a terminal.
func drawCast(cast []byte) ([]byte, error) {
	title, frames, err := screens(cast)
	if err != nil {
		return nil, err
	}
	return film(title, frames), nil
}

// frame is what a terminal shows from a moment on.
type frame struct {
	at    time.Duration
	lines []string
}

// maxTerminal bounds the width and the height of a terminal.
const maxTerminal = 500

// screens plays a recording of asciinema's version 2, and returns its title and each screen that differs from the one before.
func screens(cast []byte) (title string, frames []frame, err error) {
	lines := bufio.NewScanner(bytes.NewReader(cast))
	lines.Buffer(nil, len(cast)+1)
	var of struct {
		Version, Width, Height int
		Title                  string
	}
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &of) != nil || of.Version != 2 {
		return "", nil, errors.New("it is no recording of version 2")
	}
	if min(of.Width, of.Height) < 1 || max(of.Width, of.Height) > maxTerminal {
		return "", nil, fmt.Errorf("a terminal of %d by %d characters cannot be drawn", of.Width, of.Height)
	}
	terminal := vt10x.New(vt10x.WithSize(of.Width, of.Height))
	for lines.Scan() {
		at, text, err := event(lines.Bytes())
		if err != nil {
			return "", nil, err
		}
		if _, err := terminal.Write([]byte(text)); err != nil {
			return "", nil, err
		}
		now := strings.Split(strings.TrimRight(terminal.String(), " \n"), "\n")
		if n := len(frames); n > 0 && strings.Join(frames[n-1].lines, "\n") == strings.Join(now, "\n") {
			continue
		}
		frames = append(frames, frame{at: at, lines: now})
	}
	if len(frames) == 0 {
		return "", nil, errors.New("it shows nothing")
	}
	return of.Title, frames, lines.Err()
}

// event reads a line of a recording: the time, the kind, and the text. Input is left out.
func event(line []byte) (time.Duration, string, error) {
	var seconds float64
	var kind, text string
	if err := json.Unmarshal(line, &[]any{&seconds, &kind, &text}); err != nil {
		return 0, "", err
	}
	if kind != "o" {
		text = ""
	}
	return time.Duration(seconds * float64(time.Second)), text, nil
}

const (
	// A frame is shown as long as it was, within bounds: nobody reads faster, or waits longer.
	shortest, longest, last = 900 * time.Millisecond, 2 * time.Second, 8 * time.Second
	// A character's width, a line's height, and where in it the letters stand, in pixels.
	cell, row, baseline = 8.5, 18, 13
)

// film makes an SVG of frames: they stand below each other, and are pulled past a window of the size of one. Without
// animations, as where people want less of them, the last one stays.
func film(title string, frames []frame) []byte {
	w, h := window(frames)
	var steps, body, out bytes.Buffer
	begins, whole := times(frames)
	for i, f := range frames {
		fmt.Fprintf(&steps, "%.2f%% { transform: translateY(%dpx) }\n", 100*begins[i].Seconds()/whole.Seconds(), -i*h)
		for n, line := range f.lines {
			if line = strings.TrimRight(line, " "); line != "" {
				fmt.Fprintf(&body, "<text xml:space=\"preserve\" y=\"%d\">%s</text>\n", i*h+n*row+baseline, html.EscapeString(line))
			}
		}
	}
	fmt.Fprintf(&out, header, w+2*margin, h+2*margin, html.EscapeString(title))
	fmt.Fprintf(&out, moves, steps.String(), -(len(frames)-1)*h, whole.Seconds())
	fmt.Fprintf(&out, "<svg x=\"%[1]d\" y=\"%[1]d\" width=\"%[2]d\" height=\"%[3]d\">\n", margin, w, h)
	fmt.Fprintf(&out, "<g class=\"film\" font-family=\"%s\" font-size=\"14\">\n%s</g>\n</svg>\n</svg>\n", fonts, body.String())
	return out.Bytes()
}

// window is the size in pixels that has room for each frame.
func window(frames []frame) (width, height int) {
	columns, rows := 0, 0
	for _, f := range frames {
		rows = max(rows, len(f.lines))
		for _, line := range f.lines {
			columns = max(columns, len([]rune(strings.TrimRight(line, " "))))
		}
	}
	return int(float64(columns) * cell), rows * row
}

// times says when each frame begins, and how long all of it takes.
func times(frames []frame) (begins []time.Duration, whole time.Duration) {
	for i, f := range frames {
		begins = append(begins, whole)
		if i+1 < len(frames) {
			whole += min(max(frames[i+1].at-f.at, shortest), longest)
		}
	}
	return begins, whole + last
}

// moves is the style of a film: its steps, where its last frame is, and its seconds.
const moves = `<style>
@keyframes film {
%s}
.film { transform: translateY(%dpx) }
@media (prefers-reduced-motion: no-preference) { .film { animation: film %.2fs step-end infinite } }
</style>
`
