package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	webappv1 "example.com/guestbook/api/v1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

var _ = Describe("Guestbooks of a fleet", func() {
	It("should be served in the cluster that they are in", func(ctx SpecContext) {
		By("starting the manager against the control planes")
		members := make(static.Provider, len(clusters.Members))
		for i, cp := range clusters.Members {
			members[i] = fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config()}
		}
		mgr, err := mcmanager.New(clusters.Local.Config(), members, ctrl.Options{
			Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(SetupGuestbookWithManager(mgr)).To(Succeed())
		stopped := make(chan error, 1)
		go func() { stopped <- mgr.Start(ctx) }() // until the spec ends
		DeferCleanup(func() { Expect(<-stopped).To(Succeed()) })

		By("creating a guestbook in each")
		meta := metav1.ObjectMeta{Namespace: "default", Name: "in-a-fleet"}
		for _, cp := range clusters.Members {
			Expect(cp.Client().Create(ctx, &corev1.Secret{ObjectMeta: meta})).To(Succeed())
			guestbook := &webappv1.Guestbook{ObjectMeta: meta, Spec: webappv1.GuestbookSpec{Title: cp.Name, SecretName: meta.Name}}
			Expect(cp.Client().Create(ctx, guestbook)).To(Succeed())
		}
		for _, cp := range clusters.Members {
			Eventually(func() error {
				return cp.Client().Get(ctx, client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}, &appsv1.Deployment{})
			}, "1m").Should(Succeed())
		}
	})
})
