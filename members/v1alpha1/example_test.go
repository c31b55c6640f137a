package v1alpha1_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// Which members are not Ready, and why.
func ExampleMember() {
	list := v1alpha1.MemberList{Items: []v1alpha1.Member{ // as a client reads them
		{Spec: v1alpha1.Spec{ClusterName: "east"}, Status: v1alpha1.Status{
			State: "Ready", Reason: "NotSynced", NotSynced: []v1alpha1.NotSynced{{Kind: "Deployment.apps", Reason: "Forbidden"}},
			Lease: &v1alpha1.Lease{Namespace: "fleet-system", Name: "fleet-members"},
		}},
		{Spec: v1alpha1.Spec{ClusterName: "west"}, Status: v1alpha1.Status{State: "Unreachable", Reason: "Certificate"}},
	}}
	for _, m := range list.Items {
		if m.Status.State != "Ready" {
			fmt.Printf("%s is %s: %s\n", m.Spec.ClusterName, m.Status.State, m.Status.Reason)
		}
	}
	for _, kind := range list.Items[0].Status.NotSynced {
		fmt.Printf("%s of east cannot be listed: %s\n", kind.Kind, kind.Reason)
	}
	// Output:
	// west is Unreachable: Certificate
	// Deployment.apps of east cannot be listed: Forbidden
}

// A program pauses a member.
func ExampleObjectName() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	writer, err := client.New(ctrl.GetConfigOrDie(), client.Options{Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	member := &v1alpha1.Member{}
	member.Namespace, member.Name = "fleet-system", v1alpha1.ObjectName("team-a/prod")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true,"reason":"maintenance"}}`))
	if err := writer.Patch(context.Background(), member, patch); err != nil {
		log.Fatal(err)
	}
}

// A program prints its manifests, for kubectl apply -f -.
func ExampleCRD() {
	fmt.Println("# The CRD of", v1alpha1.GroupVersion())
	if _, err := io.WriteString(os.Stdout, v1alpha1.CRD()); err != nil {
		log.Fatal(err)
	}
}
