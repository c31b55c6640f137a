package main

import (
	"math"
	"strconv"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// mostSizes is how many objects of the hub have their size remembered, which takes some 4 MiB.
const mostSizes = 1 << 14

// sizes remember how large objects of the hub are. A target asks for each reference, and many targets have the same. The zero value is ready, and may be
// used by several workers.
type sizes struct {
	mu  sync.Mutex // guards all, and is not held while an object is measured
	all map[types.UID]measured
}

// measured is the size of an object in one of its versions, or why it has none.
type measured struct {
	version string
	size    int
	err     error
}

// of returns the size of an object of the hub as it is brought to members. The object is shared, and not changed.
func (s *sizes) of(source *unstructured.Unstructured) (int, error) {
	uid, version := source.GetUID(), source.GetResourceVersion()
	s.mu.Lock()
	known := s.all[uid]
	s.mu.Unlock()
	if known.version == version && version != "" {
		return known.size, known.err
	}
	known = measured{version: version}
	known.size, known.err = sizeOfValues(brought(source, "").Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= mostSizes {
		s.all = map[types.UID]measured{} // of those that are used, each is measured again
	}
	s.all[uid] = known
	return known.size, known.err
}

// sizeOfValues returns what [sizeOf] would return for what is decoded already. It makes no JSON of it.
func sizeOfValues(object map[string]any) (int, error) {
	var m meter
	m.add(object, 1)
	switch {
	case m.text > mostBytes:
		return 0, errTooMuch
	case m.isDeep:
		return 0, errTooDeep
	}
	return m.text + m.beside, nil
}

// meter adds up values of JSON.
type meter struct {
	text   int  // as JSON, in bytes
	beside int  // what they take in memory beside that
	isDeep bool // some are too deep, and were not looked at
}

func (m *meter) add(value any, depth int) {
	var number [32]byte
	switch value := value.(type) {
	case map[string]any:
		if m.begin(bytesOfMap, 2*len(value), depth) {
			for key, one := range value {
				m.text += lengthAsJSON(key)
				m.add(one, depth+1)
			}
		}
	case []any:
		if m.begin(bytesOfList, len(value), depth) {
			for _, one := range value {
				m.add(one, depth+1)
			}
		}
	case string:
		m.text += lengthAsJSON(value)
	case int64:
		m.text += len(strconv.AppendInt(number[:0], value, 10))
	case float64:
		format, size := byte('f'), math.Abs(value)
		if size != 0 && (size < 1e-6 || size >= 1e21) {
			format = 'e'
		}
		m.text += len(strconv.AppendFloat(number[:0], value, format, -1, 64))
	default:
		m.text += len("false") // or true or null, which are shorter
	}
}

// begin adds a map or a list without what is in it, and reports whether that may be looked at.
func (m *meter) begin(bytes, parts, depth int) bool {
	separators := max(parts-1, 0)
	m.text += len("{}") + separators
	m.beside += bytes + separators*bytesOfField
	m.isDeep = m.isDeep || depth > mostDepth
	return depth <= mostDepth
}

// lengthAsJSON returns how many bytes a text has as JSON, with what is written in another way there.
func lengthAsJSON(text string) int {
	length := len(text) + len(`""`)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"', c == '\\', c >= '\b' && c <= '\r' && c != '\v':
			length += len(`\n`) - 1
		case c < ' ', c == '<', c == '>', c == '&':
			length += len(`\u0000`) - 1
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				length += len(`\u0000`) - size
			}
			i += size - 1
		}
	}
	return length
}
