package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	webappv1 "example.com/guestbook/api/v1"
)

var _ = Describe("Guestbook Controller", func() {
	Context("When reconciling a resource", func() {
		key := client.ObjectKey{Namespace: "default", Name: "test-resource"}

		It("should serve it by a Deployment", func(ctx SpecContext) {
			By("creating the custom resource for the Kind Guestbook")
			meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
			Expect(k8sClient.Create(ctx, &corev1.Secret{ObjectMeta: meta})).To(Succeed())
			guestbook := &webappv1.Guestbook{ObjectMeta: meta, Spec: webappv1.GuestbookSpec{Title: "Guests", SecretName: key.Name}}
			Expect(k8sClient.Create(ctx, guestbook)).To(Succeed())

			By("reconciling the created resource")
			reconciler := &GuestbookReconciler{Client: k8sClient, Scheme: k8sClient.Scheme(), Recorder: events.NewFakeRecorder(10)}
			_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
			Expect(err).NotTo(HaveOccurred())
			Expect(k8sClient.Get(ctx, key, &appsv1.Deployment{})).To(Succeed())
		})
	})
})
