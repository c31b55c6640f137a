package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

const (
	// mostSelected is how many labels, expressions and values of these a selector may have together. It is compared with the labels of each member, and
	// those of overrides are compiled for each target. The CRD has the same number.
	mostSelected = 250
	// mostOfKey is how many bytes the name of a label has at most, with its prefix.
	mostOfKey = 253 + 1 + 63
)

// compiled returns a selector of labels of members. An empty one selects nothing.
func compiled(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	if err := bounded(selector); err != nil {
		return nil, err
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return s, oneline.Error(err, mostSaid)
}

// bounded returns an error about a selector that would take long to be compiled. The CRD does not say all of this, and what is stored may be older. The
// first wrong value is enough: an error about each takes a hundred times as long as the value.
func bounded(selector *metav1.LabelSelector) error {
	count := len(selector.MatchLabels) + len(selector.MatchExpressions)
	for _, e := range selector.MatchExpressions {
		count += len(e.Values)
	}
	if count > mostSelected {
		return fmt.Errorf("it has %d labels, expressions and values of these together, and may have %d: give the members that are meant a label",
			count, mostSelected)
	}
	for key, value := range selector.MatchLabels {
		if err := checkLabel(key, value); err != nil {
			return err
		}
	}
	for _, e := range selector.MatchExpressions {
		if err := checkLabel(e.Key, e.Values...); err != nil {
			return err
		}
	}
	return nil
}

func checkLabel(key string, values ...string) error {
	if len(key) > mostOfKey {
		return fmt.Errorf("%.63q… is longer than the name of any label", key)
	}
	for _, value := range values {
		if len(value) > validation.LabelValueMaxLength {
			return fmt.Errorf("%.63q… is longer than the value of any label", value)
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			return fmt.Errorf("%q is no value of a label: %s", value, wrong[0])
		}
	}
	return nil
}
