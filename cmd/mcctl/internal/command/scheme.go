package command

import (
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// newScheme knows the kinds that commands read and write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, accessv1alpha1.AddToScheme, membersv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are wrong
		}
	}
	return scheme
}
