package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// mostBytes bounds an object as JSON, after its overrides too.
	mostBytes = 1 << 20
	// mostOfAll bounds what all objects of a Replicator take in memory for a target, in bytes, and so what one does: each worker holds those of one.
	mostOfAll = 8 << 20
	// mostDepth is how deep maps and lists of an object may be in each other. Whatever goes through them is as deep in itself.
	mostDepth = 64
)

var (
	errTooMuch      = fmt.Errorf("it has more than %d bytes", mostBytes)
	errTooMuchOfAll = fmt.Errorf("the objects take together more than %d MiB of memory for one cluster, where each map, element and field counts: "+
		"make several Replicators of it", mostOfAll>>20)
	errTooDeep = fmt.Errorf("its maps and lists are more than %d deep in each other", mostDepth)
)

// room is what is left for the objects of a target.
type room struct {
	left  int
	isOut bool // something had no room, which its error says
}

// decode takes an object from JSON, if there is room.
func (r *room) decode(w *wanted, text []byte) {
	if size, err := sizeOf(text); !r.admit(w, size, err) {
		return
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		w.fail(err)
		return
	}
	w.obj = obj
}

// admit reports whether there is room for an object of a size, or that has none for a reason. Of those without room, the first is told.
func (r *room) admit(w *wanted, size int, none error) bool {
	switch {
	case none != nil:
		w.fail(none)
		return false
	case size <= r.left:
		r.left -= size
		w.size = size
		return true
	case !r.isOut:
		r.isOut = true
		w.fail(errTooMuchOfAll)
	}
	return false
}

// What is decoded takes so much memory beside its text, in bytes, and at most.
const (
	bytesOfMap   = 384 // with room for a few fields, which the first makes
	bytesOfList  = 48
	bytesOfField = 64 // or element, which both have a separator
)

// sizeOf returns how much memory an object takes at most that is this as JSON, or an error if it is too large, or too deep to be decoded.
func sizeOf(text []byte) (int, error) {
	if len(text) > mostBytes {
		return 0, errTooMuch
	}
	size, depth, inText := len(text), 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\': // of a text, as is what follows
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{', c == '[':
			if depth++; depth > mostDepth {
				return 0, errTooDeep
			}
			if size += bytesOfMap; c == '[' {
				size += bytesOfList - bytesOfMap
			}
		case c == '}', c == ']':
			depth--
		case c == ',', c == ':':
			size += bytesOfField
		}
	}
	return size, nil
}
