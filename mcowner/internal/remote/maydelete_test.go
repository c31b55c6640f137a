package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// reviewer answers access reviews.
type reviewer struct {
	cluster.Cluster
	client.Writer

	status map[string]any
	err    error
	asked  map[string]any
}

// GetRESTMapper implements cluster.Cluster.
func (*reviewer) GetRESTMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return m
}

// Create implements client.Writer.
func (r *reviewer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	review := obj.(*unstructured.Unstructured).Object //nolint:forcetypeassert // so are all reviews here
	r.asked, _, _ = unstructured.NestedMap(review, "spec", "resourceAttributes")
	review["status"] = r.status
	return r.err
}

// TestOnlyAReviewThatSaysNoDeniesARight: an authorizer that fails says nothing.
func TestOnlyAReviewThatSaysNoDeniesARight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status map[string]any
		err    error
		may    bool
	}{
		"it says yes":         {status: map[string]any{"allowed": true}, may: true},
		"it says no":          {status: map[string]any{"allowed": false, "reason": "no role"}},
		"an authorizer fails": {status: map[string]any{"allowed": false, "evaluationError": "no answer"}, may: true},
		"it says nothing":     {status: map[string]any{}, may: true},
		"it cannot be asked":  {status: map[string]any{"allowed": false}, err: errors.New("refused"), may: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reviewer{status: tc.status, err: tc.err}
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
			k := Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			if may := MayDelete(t.Context(), &Access{Timeout: time.Minute}, r, Session{Cluster: r}, k, obj); may != tc.may {
				t.Errorf("it may be deleted: %t", may)
			}
			if r.asked["namespace"] != "n" || r.asked["name"] != "a" || r.asked["resource"] != "configmaps" {
				t.Errorf("it was asked for %v", r.asked)
			}
		})
	}
}

// TestTheRightToANamespaceIsAskedForInIt, as its API server does.
func TestTheRightToANamespaceIsAskedForInIt(t *testing.T) {
	t.Parallel()
	r := &reviewer{status: map[string]any{"allowed": false}}
	k := Untyped(corev1.SchemeGroupVersion.WithKind("Namespace"))
	MayDelete(t.Context(), &Access{Timeout: time.Minute}, r, Session{Cluster: r}, k, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if r.asked["namespace"] != "a" || r.asked["name"] != "a" {
		t.Errorf("it was asked for %v", r.asked)
	}
}
