package main

import (
	"fmt"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// A call is not interrupted, and CEL counts what it costs after it. So what one call can do is bounded by what it is given: texts, of which all
// together have a size, and lists and maps. These take little to make, also where they have a part so many times that there are 2⁶⁰ values, and
// all calls but comparisons look at few of them.

// costly is how many bytes of text cost as much as a call.
const costly = 100

// callCosts says what calls cost. CEL itself knows that where it knows the types, which it does not of what an object has.
type callCosts struct{}

// CallCost implements [interpreter.ActualCostEstimator].
func (callCosts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := 1 + textOf(result)/costly
	for _, arg := range args {
		switch function {
		case operators.Equals, operators.NotEquals, operators.In:
			cost += mostValues - max(0, leftAfter(arg, mostValues, compared))
		default:
			cost += textOf(arg) / costly
		}
	}
	return new(uint64(cost)) //nolint:gosec // it is not negative
}

// compared is how much a value counts that is compared, without what is in it.
func compared(v ref.Val) int { return 1 + textOf(v)/costly }

// textOf returns how many bytes of text a value is.
func textOf(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// mostValues is how many values what is compared may have, with all that is in them. One with much text counts as several.
const mostValues = 10_000

var errManyValues = fmt.Errorf("what is compared has more than %d values, where %d bytes of text count as one", mostValues, costly)

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
	var both [2]ref.Val
	for i, arg := range b.Args() {
		if both[i] = fewValues(arg.Exec(frame)); types.IsUnknownOrError(both[i]) {
			return both[i]
		}
	}
	left, right := both[0], both[1]
	switch b.Function() {
	case operators.Equals, operators.NotEquals:
		return types.Bool((types.Equal(left, right) == types.True) == (b.Function() == operators.Equals))
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
	if leftAfter(v, mostValues, compared) < 0 {
		return types.WrapErr(errManyValues)
	}
	return v
}

// weigh returns what is left of so many bytes after a value as JSON, negative if it has more. What CEL counts is something else.
func weigh(v ref.Val, left int) int {
	return leftAfter(v, left, func(v ref.Val) int { return 8 + textOf(v) })
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
