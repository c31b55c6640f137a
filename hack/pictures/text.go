package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"strings"

	"github.com/bep/goat"
)

// drawText makes an SVG of a text. Its first line is the title, which is read out where the picture is not seen, and the drawing
// follows after an empty line.
func drawText(text []byte) ([]byte, error) {
	title, drawing, found := strings.Cut(string(text), "\n\n")
	if !found || strings.Contains(title, "\n") {
		return nil, errors.New("the first line must be a title, and the second empty")
	}
	picture := goat.BuildSVG(strings.NewReader(drawing))
	var b bytes.Buffer
	fmt.Fprintf(&b, header, picture.Width+2*margin, picture.Height+2*margin, html.EscapeString(title))
	fmt.Fprintf(&b, `<g transform="translate(%[1]d,%[1]d)" font-family="%[2]s">`+"\n%[3]s</g>\n</svg>\n", margin, fonts, picture.Body)
	return b.Bytes(), nil
}

const (
	// margin is left on each side, in pixels.
	margin = 16
	fonts  = "ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace"
)

// header begins a picture of a width, a height and a title. It has a ground of its own, since the page around it may be dark
// where the reader's system is light.
const header = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">
<title>%[3]s</title>
<style>
svg { color: #1f2328; background: #ffffff }
text { fill: currentColor }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3; background: #0d1117 } }
</style>
`
