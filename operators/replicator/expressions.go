package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

const (
	// mostCost bounds what an expression may do, in CEL's own units and those of [callCosts]. A value of a label costs a few.
	mostCost = 100_000
	// mostTime bounds how long it may take where the cost says little.
	mostTime = time.Second
	// mostTimeOfAll bounds how long all overrides of a Replicator may take for one target: it has room for thousands of expressions.
	mostTimeOfAll = 5 * time.Second
	// mostSaid is how much is told of an error, in bytes: it may quote what the object has.
	mostSaid = 1024
	// mostPrograms are kept, of texts of at most mostKept bytes: one takes up to a thousand times as much memory. Each is good for all targets.
	mostPrograms = 64
	mostKept     = 1024
)

// expressions evaluates CEL. It may be used by several workers at once.
type expressions struct {
	env      *cel.Env
	programs *lru.Cache // by text
}

func newExpressions() (*expressions, error) {
	bounded, err := cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: []*env.Function{
			{Name: overloads.Matches}, // a short one can take minutes
			{Name: operators.OldIn},   // goes past what bounds operators.In
		}})),
		cel.Variable("cluster.name", cel.StringType), cel.Variable("cluster.labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("object", cel.DynType),
	)
	if err != nil {
		return nil, err
	}
	return &expressions{env: bounded, programs: lru.New(mostPrograms)}, nil
}

// apply returns a copy of an object with the fields that expressions set.
func (e *expressions) apply(
	ctx context.Context, all []v1alpha1.Expression, obj *unstructured.Unstructured, secret bool, target dependents.Target,
) (*unstructured.Unstructured, error) {
	changed := obj.DeepCopy()
	for i, x := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		value, err := e.value(ctx, x.Expression, readable(changed.Object, secret), target)
		if err == nil {
			err = set(changed.Object, x.Path, value)
		}
		if written, misfit := json.Marshal(changed.Object); err == nil && (misfit != nil || len(written) > mostBytes) {
			err = errTooMuch // each expression could double the object
		}
		if err == nil && identityOf(changed) != identityOf(obj) {
			err = errIdentity
		}
		if err != nil {
			return nil, fmt.Errorf("cel[%d] for cluster %s: %w", i, target.Cluster, err)
		}
	}
	return changed, nil
}

// value evaluates an expression for an object. What comes out is as in JSON.
func (e *expressions) value(ctx context.Context, text string, obj map[string]any, target dependents.Target) (any, error) {
	program, err := e.program(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	out, _, err := program.ContextEval(ctx, map[string]any{
		"cluster.name": string(target.Cluster), "cluster.labels": target.Labels, "object": obj,
	})
	if err != nil {
		return nil, oneline.Error(err, mostSaid) // a key that is not there may be what the object has elsewhere
	}
	if weigh(out, mostBytes) < 0 {
		return nil, errTooMuch
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
	err = json.Unmarshal(written, &plain)
	return plain, err
}

// errTooLong ends the overrides of a Replicator for a target.
var errTooLong = fmt.Errorf("the overrides take more than %s for one cluster", mostTimeOfAll)

var errTooMuch = fmt.Errorf("it makes more than %d bytes", mostBytes)

func (e *expressions) program(text string) (cel.Program, error) {
	if known, ok := e.programs.Get(text); ok {
		return known.(cel.Program), nil //nolint:forcetypeassert // nothing else is put there
	}
	parsed, issues := e.env.Parse(text) // and no more: to check the types of 200 characters can take days, and nothing ends it
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := (&shape{env: e.env}).check(parsed.NativeRep().Expr(), 0); err != nil {
		return nil, err
	}
	program, err := e.env.Program(parsed, cel.CostLimit(mostCost), cel.CostTracking(callCosts{}), cel.InterruptCheckFrequency(1),
		cel.CustomDecoratorV2(boundComparisons))
	if err == nil && len(text) <= mostKept {
		e.programs.Add(text, program)
	}
	return program, err
}

func indexIn(list []any, part string) (int, error) {
	index, err := strconv.Atoi(part)
	if err == nil && (index < 0 || index >= len(list)) {
		err = errors.New("the list is shorter")
	}
	return index, err
}
