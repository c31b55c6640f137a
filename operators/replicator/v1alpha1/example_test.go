package v1alpha1_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// A program brings a ConfigMap of the hub, and one of its own, to the clusters of a region.
func ExampleReplicator() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	hub, err := client.New(ctrl.GetConfigOrDie(), client.Options{Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	own := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"where"}}`)}
	replicator := &v1alpha1.Replicator{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"},
		Spec: v1alpha1.Spec{
			Manifests:  []v1alpha1.Manifest{{RawExtension: own}},
			References: []v1alpha1.Reference{{Kind: "ConfigMap", Name: "settings"}},
			Clusters:   v1alpha1.Clusters{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}},
			Overrides: []v1alpha1.Override{
				{Target: v1alpha1.Target{Name: "where"}, CEL: []v1alpha1.Expression{{Path: "/data/cluster", Expression: "cluster.name"}}},
				{JSONPatch: []v1alpha1.Operation{{Op: "remove", Path: "/metadata/labels"}}},
			},
			Conflicts: v1alpha1.ConflictAdopt, DeletionPolicy: v1alpha1.DeletionOrphan, Change: v1alpha1.ChangeApply,
			Rollout: v1alpha1.Rollout{HaltAfter: 1},
		},
	}
	if err := hub.Create(context.Background(), replicator); err != nil {
		log.Fatal(err)
	}
}

// Where is it not?
func ExampleReplicatorList() {
	list := v1alpha1.ReplicatorList{Items: []v1alpha1.Replicator{ // as a client reads them
		{Status: v1alpha1.Status{Targets: 3, Synced: 2, Unreachable: 1, NotSyncedIn: "west (Unreachable)"}},
	}}
	for _, r := range list.Items {
		fmt.Println(r.Status.Synced, "of", r.Status.Targets, "but", r.Status.NotSyncedIn)
	}
	// Output: 2 of 3 but west (Unreachable)
}

// A program prints its manifests, for kubectl apply -f -.
func ExampleCRD() {
	fmt.Println("# The CRD of", v1alpha1.GroupVersion())
	if _, err := io.WriteString(os.Stdout, v1alpha1.CRD()); err != nil {
		log.Fatal(err)
	}
}
