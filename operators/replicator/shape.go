package main

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Types are not checked, since that alone can take days. What CEL evaluates without takes time and memory that no cost counts: a name is looked
// for twice in each loop around it, a path is kept in all ways to read it, and what a list is made of costs nothing.
const (
	// mostLoops is how deep loops may be in loops. One after the other, there may be many.
	mostLoops = 4
	// mostSteps is how long a path may be, such as object.spec.replicas, which has two.
	mostSteps = 16
	// mostMade is how many elements the lists and maps have together that are written within loops.
	mostMade = 128
)

// shape is what an expression is made of.
type shape struct {
	env  *cel.Env
	made int
}

// check returns an error about what an expression has that there is not, or that is too much. It is within so many loops.
func (s *shape) check(x ast.Expr, loops int) error {
	switch x.Kind() {
	case ast.CallKind:
		return s.checkCall(x.AsCall(), loops)
	case ast.SelectKind:
		return s.checkPath(x, loops)
	case ast.ComprehensionKind:
		return s.checkLoop(x.AsComprehension(), loops)
	case ast.ListKind:
		all := x.AsList().Elements()
		return s.checkMade(all, len(all), loops)
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range x.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return s.checkMade(all, len(all)/2, loops)
	case ast.StructKind: // it would copy all that it is made of
		return fmt.Errorf("there are no messages, such as %.64s: a map is written {\"key\": value}", x.AsStruct().TypeName())
	case ast.UnspecifiedExprKind, ast.IdentKind, ast.LiteralKind:
	}
	return nil
}

func (s *shape) checkAll(all []ast.Expr, loops int) error {
	for _, x := range all {
		if err := s.check(x, loops); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) checkMade(all []ast.Expr, elements, loops int) error {
	if loops > 0 {
		s.made += elements
	}
	if s.made > mostMade {
		return fmt.Errorf("lists and maps within loops have more than %d elements", mostMade)
	}
	return s.checkAll(all, loops)
}

func (s *shape) checkLoop(x ast.ComprehensionExpr, loops int) error {
	if loops == mostLoops {
		return fmt.Errorf("loops are more than %d deep in loops", mostLoops)
	}
	if err := s.check(x.IterRange(), loops); err != nil {
		return err
	}
	return s.checkAll([]ast.Expr{x.AccuInit(), x.LoopCondition(), x.LoopStep(), x.Result()}, loops+1)
}

func (s *shape) checkCall(x ast.CallExpr, loops int) error {
	name, all := x.FunctionName(), x.Args()
	if !s.env.HasFunction(name) {
		return fmt.Errorf("there is no function %s", name)
	}
	if x.IsMemberFunction() {
		all = append([]ast.Expr{x.Target()}, all...)
	}
	if (name == operators.Equals || name == operators.NotEquals) && len(all) == 2 {
		if isOfCluster(all[0]) && isNumber(all[1]) || isNumber(all[0]) && isOfCluster(all[1]) {
			return errors.New("the cluster's name and labels are text, which is never equal to a number: write \"3\", or int(...)")
		}
	}
	if len(all) > 0 && stepsOf(all[0]) >= mostSteps {
		return errLong
	}
	return s.checkAll(all, loops)
}

func (s *shape) checkPath(x ast.Expr, loops int) error {
	path := x.AsSelect()
	switch {
	case path.IsTestOnly() && isCluster(path.Operand()):
		return fmt.Errorf("cluster.%.64s is always there: has() tells of a label, as in has(cluster.labels.region)", path.FieldName())
	case stepsOf(x) > mostSteps:
		return errLong
	}
	return s.check(path.Operand(), loops)
}

var errLong = fmt.Errorf("a path has more than %d steps", mostSteps)

// stepsOf returns how many steps a path has, zero if an expression is none. One that goes on from either of two takes the steps of both.
func stepsOf(x ast.Expr) int {
	if before := stepBefore(x); before != nil {
		return 1 + stepsOf(before)
	}
	if x.Kind() == ast.CallKind && x.AsCall().FunctionName() == operators.Conditional && len(x.AsCall().Args()) == 3 {
		return max(stepsOf(x.AsCall().Args()[1]), stepsOf(x.AsCall().Args()[2]))
	}
	return 0
}

// stepBefore returns of what a path is a field or an element, nil if an expression is none.
func stepBefore(x ast.Expr) ast.Expr {
	switch {
	case x.Kind() == ast.SelectKind:
		return x.AsSelect().Operand()
	case x.Kind() == ast.CallKind && x.AsCall().FunctionName() == operators.Index && len(x.AsCall().Args()) > 0:
		return x.AsCall().Args()[0]
	}
	return nil
}

// isOfCluster reports whether an expression is the cluster's name, or one of its labels.
func isOfCluster(x ast.Expr) bool {
	for before := stepBefore(x); before != nil; before = stepBefore(x) {
		x = before
	}
	return isCluster(x)
}

func isCluster(x ast.Expr) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == "cluster" }

func isNumber(x ast.Expr) bool {
	if x.Kind() != ast.LiteralKind {
		return false
	}
	is := x.AsLiteral().Type()
	return is == types.IntType || is == types.UintType || is == types.DoubleType
}
