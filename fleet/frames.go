package fleet

// frames measures the events of a watch in JSON, which follow each other without their length. client-go reads one to its
// end before it looks at it, so one that has none would fill the memory. In protobuf they have a length, which it limits.
type frames struct {
	size    int64 // of the event that has begun, with the space before it
	depth   int   // of open braces
	quoted  bool  // within a string
	escaped bool  // after a backslash within a string
}

// mostEvent is how large an event may be, in bytes: many times what an API server stores of one object.
const mostEvent = 64 << 20

// read notes bytes that arrived, and returns the size of the event that is not complete yet.
func (f *frames) read(p []byte) int64 {
	f.size += int64(len(p))
	for i, c := range p {
		switch {
		case f.escaped:
			f.escaped = false
		case f.quoted:
			f.escaped, f.quoted = c == '\\', c != '"'
		case c == '"':
			f.quoted = true
		case c == '{':
			f.depth++
		case c == '}':
			f.depth--
			if f.depth == 0 {
				f.size = int64(len(p) - i - 1)
			}
		}
	}
	return f.size
}
