package main

import (
	"fmt"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// mostValues is how many values a list or map may have, with all that is in them, which an expression compares. One that it makes may have a
// part many times, so that a few steps make 2⁶⁰ values: CEL counts what a call costs after it, and nothing interrupts one. Other calls look
// at few of the values, whatever there are.
const mostValues = 10_000

var errManyValues = fmt.Errorf("a list or map has more than %d values, which are too many to be compared", mostValues)

// boundComparisons is a decorator of CEL's programs.
func boundComparisons(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok {
		switch call.Function() {
		case operators.Equals, operators.NotEquals, operators.In:
			return &boundComparison{call}, nil
		}
	}
	return i, nil
}

// boundComparison looks through what it compares, which may be the object too.
type boundComparison struct {
	interpreter.InterpretableCall
}

// Exec implements [interpreter.InterpretableV2].
func (b *boundComparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var compared [2]ref.Val
	for i, arg := range b.Args() {
		if compared[i] = fewValues(arg.Exec(frame)); types.IsUnknownOrError(compared[i]) {
			return compared[i]
		}
	}
	left, right := compared[0], compared[1]
	switch b.Function() {
	case operators.Equals:
		return types.Equal(left, right)
	case operators.NotEquals:
		return types.Bool(types.Equal(left, right) != types.True)
	}
	if in, ok := right.(traits.Container); ok {
		return in.Contains(left)
	}
	return types.MaybeNoSuchOverloadErr(right)
}

// Eval implements [interpreter.InterpretableV2].
func (b *boundComparison) Eval(in interpreter.Activation) ref.Val {
	return b.Exec(interpreter.AsFrame(in))
}

// fewValues returns a value, or an error if it has more than may be.
func fewValues(v ref.Val) ref.Val {
	if leftAfter(v, mostValues, func(ref.Val) int { return 1 }) < 0 {
		return types.WrapErr(errManyValues)
	}
	return v
}

// weigh returns what is left of so many bytes after a value as JSON, negative if it has more. What CEL counts is something else.
func weigh(v ref.Val, left int) int {
	return leftAfter(v, left, func(v ref.Val) int {
		switch v := v.(type) {
		case types.String:
			return 8 + len(v)
		case types.Bytes:
			return 8 + 2*len(v)
		}
		return 8
	})
}

// leftAfter returns what is left of an amount after a value and all that is in it, of which each takes something. It is negative, and the rest is not
// looked at, if that is more.
func leftAfter(v ref.Val, left int, takes func(ref.Val) int) int {
	left -= takes(v)
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); left >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			left = leftAfter(v.Get(key), leftAfter(key, left, takes), takes)
		}
	case traits.Lister:
		for it := v.Iterator(); left >= 0 && it.HasNext() == types.True; {
			left = leftAfter(it.Next(), left, takes)
		}
	}
	return left
}
