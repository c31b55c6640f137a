package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

const page = "# Page\n\n## Memory\n\nText.\n\n| members |  | heap | engaged after |\n|---|---|---|---|\n| 100 | ours, Secrets | 95 KB | 0.3 s |\n" +
	"| 100 | theirs | 460 KB | 10.9 s |\n| 1000 | ours, Secrets | 94 KB | 2.2 s |\n| 1000 | theirs | 460 KB | 107.8 s |\n\n## Other\n\n| a |\n|---|\n"

var (
	memory     = chart{title: "Heap of an idle member", section: ofMembers, x: members, y: "heap", unit: "KB"}
	engagement = chart{title: "Engaged", section: ofMembers, x: members, y: "engaged after", log: true}
)

func TestEachRowOfATableIsAPointOfItsLine(t *testing.T) {
	lines, err := engagement.lines(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].name != "ours" || lines[1].name != "theirs" {
		t.Fatalf("lines are %v", lines)
	}
	if got := lines[1].points; len(got) != 2 || got[0].X != 100 || got[0].Y != 10.9 || got[1].X != 1000 || got[1].Y != 107.8 {
		t.Errorf("the points of the second are %v", got)
	}
}

func TestAColumnIsALine(t *testing.T) {
	const page = "# Page\n\n## Queue\n\n| clusters | workers | ours | theirs |\n|---|---|---|---|\n| 1 | 1 | 7 ns | 20 ns |\n| 1 | 16 | 9 ns | 25 ns |\n| 10 | 1 | 8 ns | 2 ns |\n"
	c := chart{section: "## Queue", x: "clusters", ys: []string{"ours", "theirs"}, only: [2]string{"workers", "1"}}
	lines, err := c.lines(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].name != "ours" || lines[1].name != "theirs" || len(lines[0].points) != 2 || lines[1].points[1].Y != 2 {
		t.Errorf("lines are %v", lines)
	}
	c.only[0] = "threads"
	if _, err := c.lines(page); err == nil {
		t.Error("a column that is missing is no error")
	}
}

func TestATableThatIsNotThereIsAnError(t *testing.T) {
	for name, page := range map[string]string{
		"no section":      "# Page\n",
		"no table":        "# Page\n\n## Memory\n",
		"no such column":  strings.Replace(page, "heap", "RSS", 1),
		"no rows":         "# Page\n\n## Memory\n\n| members |  | heap |\n|---|---|---|\n",
		"a cell is empty": strings.Replace(page, "460 KB", "", 1),
	} {
		if _, err := memory.draw(page); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPicturesAreXMLWithATitle(t *testing.T) {
	plot, err := memory.draw(page)
	if err != nil {
		t.Fatal(err)
	}
	text, err := drawText([]byte("This & that\n\n.---.\n| <-+->\n'---'\n"))
	if err != nil {
		t.Fatal(err)
	}
	for title, picture := range map[string][]byte{"Heap of an idle member": plot, "This &amp; that": text} {
		if !strings.Contains(string(picture), "<title>"+title+"</title>") {
			t.Errorf("%s: the title is missing", title)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(picture)))
		for err = nil; err == nil; _, err = decoder.Token() { //nolint:revive // reads to the end
		}
		if err != io.EOF { //nolint:errorlint // as the decoder says
			t.Errorf("%s: %v", title, err)
		}
	}
}

func TestATextNeedsATitle(t *testing.T) {
	for _, text := range []string{"", "title\n.--.\n", "two\nlines\n\n.--.\n"} {
		if _, err := drawText([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestAFilmHasAFrameForEachScreen(t *testing.T) {
	title, frames, err := screens([]byte(`{"version":2,"width":20,"height":5,"title":"make demo"}
[0.5,"o","one\r\ntwo"]
[0.6,"i","typed"]
[9,"o","\r\u001b[1A\u001b[Jthree <&>"]
[9.1,"o","\u001b[0m"]
`))
	if err != nil {
		t.Fatal(err)
	}
	if title != "make demo" || len(frames) != 2 {
		t.Fatalf("%q has frames %v", title, frames)
	}
	if got := strings.TrimSpace(frames[1].lines[0]); got != "three <&>" || len(frames[1].lines) != 1 {
		t.Errorf("the second is %q", frames[1].lines)
	}
	begins, whole := times(frames)
	if begins[1] != longest || whole != longest+last {
		t.Errorf("frames begin at %v, and it takes %v", begins, whole)
	}
	if picture := string(film(title, frames)); !strings.Contains(picture, "three &lt;&amp;&gt;") || !strings.Contains(picture, "<title>make demo</title>") {
		t.Errorf("the film is %s", picture)
	}
}

func TestWhatIsNoRecordingIsAnError(t *testing.T) {
	for name, cast := range map[string]string{
		"empty":          "",
		"version 1":      `{"version":1,"width":20,"height":5}`,
		"shows nothing":  `{"version":2,"width":20,"height":5}`,
		"too large":      `{"version":2,"width":20000000,"height":5}` + "\n" + `[1,"o","a"]`,
		"without size":   `{"version":2}` + "\n" + `[1,"o","a"]`,
		"a broken event": `{"version":2,"width":20,"height":5}` + "\n" + `{"a":1}`,
	} {
		if _, _, err := screens([]byte(cast)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
