package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// forMembers is the annotation of a ConfigMap with policies. Its value selects members by their labels, and all if it is empty.
const forMembers = "policies.example.com/members"

// addPolicies adds a controller that puts the policies of annotated ConfigMaps into members.
func addPolicies(mgr mcmanager.Manager, namespace string) error {
	policies := &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet:          "example", // of several on the same clusters, each has its own
		Name:           "policies",
		OwnersIn:       mcowner.Clusters{Local: true},
		MoreKinds:      onlyPolicies,
		StateNamespace: namespace,
		Targets: func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			return targets(mgr, owner)
		},
		Desired: func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			return policiesOf(owner)
		},
		OnMemberLeaving: dependents.LeaveDeleted,
	}
	return policies.SetupWithManager(mgr)
}

// onlyPolicies keeps those who may write ConfigMaps from putting anything else into members.
func onlyPolicies(kind schema.GroupVersionKind) error {
	allowed := []string{
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}
	if kind.Group != admissionregistrationv1.GroupName || !slices.Contains(allowed, kind.Kind) {
		return fmt.Errorf("%s is no policy", kind.Kind)
	}
	return nil
}

func targets(mgr mcmanager.Manager, owner *corev1.ConfigMap) (names []mcreconcile.ClusterName, err error) {
	text, annotated := owner.Annotations[forMembers]
	if !annotated {
		return nil, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s: %w", forMembers, err)
	}
	for _, member := range mgr.GetFleet().List(selector) {
		names = append(names, member.Name)
	}
	return names, nil
}

// policiesOf returns what the values of a ConfigMap hold, in the order of their keys.
func policiesOf(owner *corev1.ConfigMap) (policies []client.Object, err error) {
	for _, key := range slices.Sorted(maps.Keys(owner.Data)) {
		documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(owner.Data[key]), 4096)
		for {
			policy := &unstructured.Unstructured{}
			if err := documents.Decode(&policy.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("reading %s: %w", key, err)
			}
			if len(policy.Object) > 0 {
				policies = append(policies, policy)
			}
		}
	}
	return policies, nil
}
