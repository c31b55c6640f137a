package demo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table returns the rows as lines under a heading, each cut to the given width.
func table(rows []row, width int) []string {
	if len(rows) == 0 {
		return nil
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	replica := ""
	if slices.ContainsFunc(rows, func(r row) bool { return r.owner != "" }) {
		replica = "REPLICA\t"
	}
	_, _ = fmt.Fprintln(w, "MEMBER\t"+replica+"STATE\tOBJECTS\tRECONCILES\tLAST EVENT")
	for _, r := range rows {
		if replica != "" {
			replica = r.owner + "\t"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s%s\t%d\t%d\t%s %s\n", r.name, replica, r.state, r.objects, r.reconciles, clock(r.at), r.event)
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return lines
}

// mostOfEvent is how much of an event a line of its own shows.
const mostOfEvent = 200

// line returns a row as a line of its own.
func line(r row) string {
	state := r.state
	if r.owner != "" {
		state += " in " + r.owner
	}
	return fmt.Sprintf("%s %s %s, objects %d, reconciles %d: %s",
		clock(r.at), r.name, state, r.objects, r.reconciles, cut(r.event, mostOfEvent))
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
