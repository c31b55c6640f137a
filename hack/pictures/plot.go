package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a table of the page on performance as a picture, with a line for each name in its second column, or for each of several
// columns.
type chart struct {
	file, title string
	section     string    // the heading under which the table stands
	x, y        string    // headings of columns
	ys          []string  // headings of columns that are a line each, in the place of y
	only        [2]string // the heading of a column, and the cell in it that rows must have. Without, all rows count
	unit        string    // of y
	log         bool      // whether y is logarithmic, as x always is
}

const (
	// members is the heading of the column with their number.
	members = "members"
	// ofMembers is the section with what each of them costs.
	ofMembers = "## Memory"
)

// charts are all that there are.
var charts = []chart{
	{
		file: "queue.svg", title: "Add, get and done of one request, one worker", section: "### Add, get and done of one request, with 10,000 queued",
		x: "clusters", ys: []string{"fleet-runtime", "controller-runtime", "client-go"}, only: [2]string{"workers", "1"}, unit: "ns",
	},
	{file: "memory.svg", title: "Heap of an idle member", section: ofMembers, x: members, y: "heap", unit: "KB"},
	{file: "rss.svg", title: "RSS of an idle member", section: ofMembers, x: members, y: "RSS", unit: "KB"},
	{
		file: "engagement.svg", title: "Time until all members are engaged", section: ofMembers,
		x: members, y: "engaged after", unit: "seconds", log: true,
	},
	{
		file: "hub-writes.svg", title: "Writes to the hub of three replicas", section: "### Requests to the hub",
		x: members, y: "writes of Leases", unit: "a second", log: true,
	},
}

// line is what is drawn of one name.
type line struct {
	name   string
	points plotter.XYs
}

// draw makes an SVG of the chart's table in the page.
func (c chart) draw(page string) ([]byte, error) {
	lines, err := c.lines(page)
	if err != nil {
		return nil, err
	}
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.unit
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks(lines)
	if c.log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding, p.Title.Padding = true, true, vg.Points(2), vg.Points(6)
	for i, l := range lines {
		if err := add(p, l, i); err != nil {
			return nil, err
		}
	}
	if c.log {
		p.Y.Max *= 10 // room for the legend
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.5
	}
	return c.svg(p), nil
}

// add draws a line with its points, and names it in the legend. Ours is the first, and is the thick one.
func add(p *plot.Plot, l line, i int) error {
	path, points, err := plotter.NewLinePoints(l.points)
	if err != nil {
		return err
	}
	path.Color, points.Color = colors[i%len(colors)], colors[i%len(colors)]
	points.Shape, points.Radius = shapes[i%len(shapes)], vg.Points(3)
	path.Width = vg.Points(1)
	if i == 0 {
		path.Width = vg.Points(2)
	}
	p.Add(path, points)
	p.Legend.Add(l.name, path, points)
	return nil
}

// Colours that are told apart by people who see few of them, and on light and dark grounds; shapes for the others.
var (
	colors = []color.Color{color.RGBA{R: 0x00, G: 0x90, B: 0xd0, A: 0xff}, color.RGBA{R: 0xd5, G: 0x7e, B: 0x00, A: 0xff}, color.RGBA{R: 0x8c, G: 0x8c, B: 0x8c, A: 0xff}}
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}
)

// ticks has a tick for each x that was measured.
func ticks(lines []line) plot.ConstantTicks {
	all := make(plot.ConstantTicks, len(lines[0].points))
	for i, point := range lines[0].points {
		all[i] = plot.Tick{Value: point.X, Label: strconv.FormatFloat(point.X, 'f', -1, 64)}
	}
	return all
}

// scale is how many pixels a point of a plot has.
const scale = 2

// svg writes the plot without its black, so that it can be read on a dark page.
func (c chart) svg(p *plot.Plot) []byte {
	const width, height = 360, 225 // points
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	var b, out bytes.Buffer
	_, _ = canvas.WriteTo(&b) // into memory
	_, body, _ := strings.Cut(b.String(), "<g ")
	body = strings.NewReplacer("#000000", "currentColor", "Liberation Serif", "system-ui,sans-serif", "</svg>", "").Replace("<g " + body)
	fmt.Fprintf(&out, header, width*scale+2*margin, height*scale+2*margin, html.EscapeString(c.title))
	fmt.Fprintf(&out, "<g transform=\"translate(%[1]d,%[1]d) scale(%[2]d)\">\n%[3]s</g>\n</svg>\n", margin, scale, body)
	return out.Bytes()
}

// lines reads the chart's table, the first one under its heading.
func (c chart) lines(page string) ([]line, error) {
	_, section, found := strings.Cut(page, "\n"+c.section+"\n")
	if !found {
		return nil, fmt.Errorf("there is no section %q", c.section)
	}
	var rows [][]string
	for row := range strings.Lines(section) {
		if strings.HasPrefix(row, "|") {
			rows = append(rows, strings.Split(strings.Trim(row, "|\n"), "|"))
		} else if len(rows) > 0 {
			break
		}
	}
	if len(c.ys) == 0 {
		return c.lineOf(rows, nil, c.y, "")
	}
	var lines []line
	for _, y := range c.ys {
		var err error
		if lines, err = c.lineOf(rows, lines, y, y); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// lineOf adds the points of a column to the line of a name, or to those of the names in the second column.
func (c chart) lineOf(rows [][]string, lines []line, heading, name string) ([]line, error) {
	x, y, only := column(rows, c.x), column(rows, heading), column(rows, c.only[0])
	if x < 0 || y < 0 || only < 0 && c.only[0] != "" {
		return nil, fmt.Errorf("the table under %q has not all of the columns %q, %q and %q", c.section, c.x, heading, c.only[0])
	}
	for _, row := range rows[2:] {
		if c.only[0] != "" && strings.TrimSpace(row[only]) != c.only[1] {
			continue
		}
		of := name
		if of == "" {
			of, _, _ = strings.Cut(strings.TrimSpace(row[1]), ",") // without how it was measured
		}
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == of })
		if i < 0 {
			i, lines = len(lines), append(lines, line{name: of})
		}
		point, err := c.point(row[x], row[y])
		if err != nil {
			return nil, err
		}
		lines[i].points = append(lines[i].points, point)
	}
	return lines, nil
}

// column is where a table has a heading, or -1.
func column(rows [][]string, heading string) int {
	if len(rows) < 3 {
		return -1
	}
	return slices.IndexFunc(rows[0], func(cell string) bool { return strings.TrimSpace(cell) == heading })
}

// number is the first one in a cell, whatever its unit.
var number = regexp.MustCompile(`[0-9.]+`)

// point reads two cells.
func (c chart) point(x, y string) (plotter.XY, error) {
	a, errA := strconv.ParseFloat(number.FindString(x), 64)
	b, errB := strconv.ParseFloat(number.FindString(y), 64)
	if err := errors.Join(errA, errB); err != nil {
		return plotter.XY{}, fmt.Errorf("the table under %q: %w", c.section, err)
	}
	return plotter.XY{X: a, Y: b}, nil
}
