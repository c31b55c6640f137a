package main

import (
	"encoding/json"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	// mostCost bounds what an expression may do, in CEL's own units: most that take too long end with an error about this, and not with their process.
	mostCost = 100_000
	// mostSaid is how much is told of an error, in bytes: it may quote what the object or an override has.
	mostSaid = 1024
)

// expressions evaluates CEL, in a process of [children]: nothing here bounds the time and memory that it takes.
type expressions struct {
	env      *cel.Env
	programs map[string]cel.Program // of one namespace, by their text
	texts    int                    // how many bytes these texts have
}

// mostTexts is how many bytes of expressions are kept as programs, which take some forty times as much. Those of a Replicator are the same for all its
// targets.
const mostTexts = 256 << 10

func (e *expressions) forget() {
	clear(e.programs)
	e.texts = 0
}

// program returns what an expression is compiled to.
func (e *expressions) program(text string) (cel.Program, error) {
	if known, is := e.programs[text]; is {
		return known, nil
	}
	compiled, issues := e.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	made, err := e.env.Program(compiled, cel.CostLimit(mostCost))
	if err != nil {
		return nil, err
	}
	if e.texts+len(text) > mostTexts {
		e.forget()
	}
	e.programs[text] = made
	e.texts += len(text)
	return made, nil
}

func newExpressions() (*expressions, error) {
	all, err := cel.NewEnv(
		cel.Variable("cluster.name", cel.StringType), cel.Variable("cluster.labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("object", cel.DynType),
	)
	return &expressions{env: all, programs: map[string]cel.Program{}}, err
}

// value evaluates an expression about an object and a cluster. What comes out is as in JSON.
func (e *expressions) value(text string, obj map[string]any, j *job) (any, error) {
	program, err := e.program(text)
	if err != nil {
		return nil, err
	}
	out, _, err := program.Eval(map[string]any{"cluster.name": j.Cluster, "cluster.labels": j.Labels, "object": obj})
	if err != nil {
		return nil, err
	}
	native, err := out.ConvertToNative(types.JSONValueType)
	if err != nil {
		return nil, fmt.Errorf("what it returns cannot be written as JSON: %w", err)
	}
	written, err := json.Marshal(native)
	if err != nil {
		return nil, err
	}
	var plain any
	err = utiljson.Unmarshal(written, &plain)
	return plain, err
}
