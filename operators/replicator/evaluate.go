package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// evaluating is the argument that makes this program a process of [children].
const evaluating = "evaluate-overrides"

// isEvaluating reports whether this process is to evaluate overrides, and no more.
func isEvaluating() bool { return len(os.Args) == 2 && os.Args[1] == evaluating }

// evaluate is the main function of a process of [children], which may have so many bytes of memory. It returns the code to exit with.
func evaluate(memory uint64) int {
	if err := confine(memory); err != nil {
		return 1
	}
	all, err := newExpressions()
	if err == nil {
		err = writeFrame(os.Stdout, frameReady, nil)
	}
	if err == nil {
		err = all.serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		return 1 // nobody would read why
	}
	return 0
}

// serve does jobs until there are no more.
func (e *expressions) serve(in io.Reader, out io.Writer) error {
	var j job
	for {
		kind, content, err := readFrame(in, math.MaxUint32)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case kind == frameJob:
			before := j.Namespace
			j = job{}
			if err = json.Unmarshal(content, &j); j.Namespace != before {
				e.forget() // no namespace has what another one has filled
			}
		case kind == frameObject:
			err = e.answer(out, &j, content)
		default:
			err = fmt.Errorf("a frame of the kind %d", kind)
		}
		if err != nil {
			return err
		}
	}
}

func (e *expressions) answer(out io.Writer, j *job, text []byte) error {
	changed, err := j.apply(e, text)
	if err == nil && len(changed) > mostBytes {
		err = errTooMuch
	}
	if err != nil {
		return writeFrame(out, frameError, []byte(oneline.Text(err.Error(), mostSaid)))
	}
	return writeFrame(out, frameResult, changed)
}
