package controller

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	webappv1 "example.com/guestbook/api/v1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var (
	clusters  *mctest.Fleet
	k8sClient client.Client
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)

	RunSpecs(t, "Controller Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))

	Expect(webappv1.AddToScheme(scheme.Scheme)).To(Succeed())

	By("bootstrapping test environment")
	clusters = mctest.Start(GinkgoTB(), mctest.Options{
		Clusters: 2,
		CRDPaths: []string{filepath.Join("..", "..", "config", "crd", "bases")},
		Scheme:   scheme.Scheme,
	})
	k8sClient = clusters.Members[0].Client()
})
