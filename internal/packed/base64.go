package packed

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

const (
	// shortest is the length of the shortest run that is taken apart, in characters.
	shortest = 32
	// line is the length of the lines of PEM.
	line = 64
	// deepest is how often base64 is taken apart that holds base64.
	deepest = 4
)

// A text that was taken apart is a row of parts: the length of what stays as it is, that, and then, unless it is the end, whether
// the base64 that follows has lines, the length of what it holds, and that, taken apart itself.
const (
	unbroken byte = iota
	inLines
)

// takeApart appends the parts of a text to out.
func takeApart(out, text []byte, depth int) []byte {
	plain := 0 // where what stays begins
	for at := 0; at < len(text); {
		run, form := runAt(text[at:])
		if len(run) < shortest || depth == deepest {
			at += max(1, len(run))
			continue
		}
		held, ok := decode(run, form)
		if ok {
			out = appendWithLength(out, text[plain:at])
			out = append(out, form)
			out = appendWithLength(out, takeApart(nil, held, depth+1))
			plain = at + len(run)
		}
		at += len(run)
	}
	return appendWithLength(out, text[plain:])
}

// runAt returns what may be base64 at the beginning of a text, and whether it has lines.
func runAt(text []byte) (run []byte, form byte) {
	end := lettersIn(text)
	for end%(line+1) == line && end+1 < len(text) && text[end] == '\n' {
		more := lettersIn(text[end+1:])
		if more == 0 || more > line {
			break
		}
		end, form = end+1+more, inLines
	}
	for pad := 0; pad < 2 && end < len(text) && text[end] == '='; pad++ {
		end++
	}
	return text[:end], form
}

func lettersIn(text []byte) (n int) {
	for n < len(text) && isLetter(text[n]) {
		n++
	}
	return n
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/'
}

// decode returns what a run holds, if it is exactly the base64 of that.
func decode(run []byte, form byte) (held []byte, ok bool) {
	held, err := base64.StdEncoding.AppendDecode(nil, run) // it skips the ends of lines
	return held, err == nil && bytes.Equal(encode(nil, held, form), run)
}

// encode appends the base64 of something to out.
func encode(out, held []byte, form byte) []byte {
	if form == unbroken {
		return base64.StdEncoding.AppendEncode(out, held)
	}
	const bytesOfLine = line / 4 * 3
	for ; len(held) > bytesOfLine; held = held[bytesOfLine:] {
		out = append(base64.StdEncoding.AppendEncode(out, held[:bytesOfLine]), '\n')
	}
	return base64.StdEncoding.AppendEncode(out, held)
}

func appendWithLength(out, text []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}

var errBroken = errors.New("unpacking: it was not packed here")

// putTogether appends the text to out that was taken apart.
func putTogether(out, parts []byte) ([]byte, error) {
	for {
		plain, rest, ok := cutWithLength(parts)
		if !ok {
			return nil, errBroken
		}
		out = append(out, plain...)
		if len(rest) == 0 {
			return out, nil
		}
		inner, after, ok := cutWithLength(rest[1:])
		if !ok {
			return nil, errBroken
		}
		held, err := putTogether(nil, inner)
		if err != nil {
			return nil, err
		}
		out = encode(out, held, rest[0])
		parts = after
	}
}

// cutWithLength returns what begins parts, and what follows it.
func cutWithLength(parts []byte) (part, rest []byte, ok bool) {
	length, n := binary.Uvarint(parts)
	if n <= 0 || length > uint64(len(parts)-n) { //nolint:gosec // n is less than the length
		return nil, nil, false
	}
	return parts[n : n+int(length)], parts[n+int(length):], true //nolint:gosec // it is at most len(parts)
}
