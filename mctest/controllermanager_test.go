package mctest_test

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestAControllerManagerDoesItsPart(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	cp.StartControllerManager(t, "deployment-controller")
	labels := map[string]string{"app": "nginx"}
	mustCreate(t, cp.Client(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "nginx"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	})
	eventually(t, func(ctx context.Context) error {
		list := &appsv1.ReplicaSetList{}
		if err := cp.Client().List(ctx, list); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return errors.New("the Deployment has no ReplicaSet")
		}
		return nil
	})
}
