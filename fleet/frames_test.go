package fleet

import (
	"strings"
	"testing"
)

func TestAnEventIsMeasuredUntilItsEnd(t *testing.T) {
	cases := map[string]struct {
		text string
		want int64
	}{
		"complete":               {`{"a":1}`, 0},
		"complete, and a space":  {`{"a":1}` + "\n", 1},
		"two, and half of one":   {`{"a":1}{"b":{}}{"c`, 3},
		"braces in strings":      {`{"}":"{\"}"`, 11},
		"a backslash at the end": {`{"a\\":1}`, 0},
		"space without an end":   {"\n\n\n\n", 4},
		"nested":                 {`{"a":{"b":{}}`, 13},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var whole frames
			if got := whole.read([]byte(c.text)); got != c.want {
				t.Errorf("read(%q) = %d, want %d", c.text, got, c.want)
			}
			var piecewise frames
			var got int64
			for _, b := range []byte(c.text) {
				got = piecewise.read([]byte{b})
			}
			if got != c.want {
				t.Errorf("read(%q) byte by byte = %d, want %d", c.text, got, c.want)
			}
		})
	}
}

func BenchmarkFrames(b *testing.B) {
	event := []byte(`{"type":"ADDED","object":{"metadata":{"name":"` + strings.Repeat("x", 4096) + `"}}}` + "\n")
	b.SetBytes(int64(len(event)))
	var f frames
	for b.Loop() {
		f.read(event)
	}
}
