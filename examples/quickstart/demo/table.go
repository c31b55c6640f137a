package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// table returns the rows as lines under a heading, each cut to the given width.
func table(rows []row, width int) []string {
	if len(rows) == 0 {
		return nil
	}
	cells := [][]string{{"MEMBER", "STATE", "OBJECTS", "RECONCILES", "LAST EVENT"}}
	for _, r := range rows {
		cells = append(cells, []string{
			string(r.name), r.state, strconv.Itoa(r.objects), strconv.Itoa(r.reconciles), clock(r.at) + " " + r.event,
		})
	}
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(cells))
	for i, row := range cells {
		lines[i] = cut(fmt.Sprintf("%-*s  %-*s  %*s  %*s  %s",
			widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], row[4]), width)
	}
	return lines
}

// mostOfEvent is how much of an event a line of its own shows.
const mostOfEvent = 200

// line returns a row as a line of its own.
func line(r row) string {
	return fmt.Sprintf("%s %s %s, objects %d, reconciles %d: %s",
		clock(r.at), r.name, r.state, r.objects, r.reconciles, cut(r.event, mostOfEvent))
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// cut shortens a line to a number of characters, and marks where something is missing.
func cut(line string, width int) string {
	line = strings.TrimRight(line, " ")
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:max(width-1, 0)]) + "…"
}
