package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// addCopier adds a controller that keeps a copy of each Deployment of the source in every target. Where a source or a target leaves
// well, copies stay: that is the default of OnOwnersLeaving and of OnMemberLeaving.
func addCopier(mgr mcmanager.Manager, namespace string) error {
	copier := &dependents.Reconciler[*appsv1.Deployment]{
		Fleet:        "example", // of several copiers on the same clusters, each has its own
		Name:         "deploymentcopy",
		OwnersIn:     membersWith(sourceRole),
		DependentsIn: membersWith(targetRole),
		Kinds:        []client.Object{&appsv1.Deployment{}},
		Namespaces:   []string{namespace},
		Desired:      copyOf,
	}
	return copier.SetupWithManager(mgr)
}

// Members have one of these labels, or neither: then nothing is done there.
var (
	sourceRole = labels.Set{"role": "source"}
	targetRole = labels.Set{"role": "target"}
)

func membersWith(role labels.Set) mcowner.Clusters {
	return mcowner.Clusters{Members: labels.SelectorFromSet(role)}
}

// copyOf returns what is to be in a target: all that the user has said about the Deployment, but its annotations, which
// are often about the cluster that they are in.
func copyOf(_ context.Context, original *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
	return []client.Object{&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: original.Name, Labels: original.Labels},
		Spec:       original.Spec,
	}}, nil
}
