package mctest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// CRDs are installed in all clusters of a fleet.
func ExampleStart() {
	var (
		t      *testing.T // of the test, or GinkgoTB()
		scheme *runtime.Scheme
	)
	clusters := mctest.Start(t, mctest.Options{
		Clusters: 2,
		CRDPaths: []string{filepath.Join("..", "..", "config", "crd", "bases")},
		Scheme:   scheme,
	})
	for _, member := range clusters.Members {
		_ = member.Client() // knows the kinds of the scheme
	}
}

// Tests of a package share control planes, which makes them quick.
func ExamplePool() {
	var pool mctest.Pool
	_ = func(m *testing.M) { os.Exit(pool.Run(m)) } // TestMain

	test := func(t *testing.T) { //nolint:thelper // it is a test
		clusters := pool.Start(t, mctest.Options{Clusters: 2})
		clusters.Members[0].Stop(t)
		// The other member is still served.
		clusters.Members[0].Restart(t)
	}
	_ = test
}

// A program under test has the rights of its manifests, one for each side, and the suite tells what these lack, or have too much.
func ExampleControlPlane_RecordRights() {
	var pool mctest.Pool
	_ = func(m *testing.M) { os.Exit(pool.Run(m)) } // TestMain

	test := func(t *testing.T, run func(hub, member *rest.Config)) { //nolint:thelper // it is a test
		clusters := pool.Start(t, mctest.Options{Clusters: 1})
		hub := clusters.Local.RecordRights(t, mctest.Rights{
			File: "rbac/hub.yaml",
			Needed: map[string]string{
				"update leases.coordination.k8s.io": "the tests run one replica, which is not elected",
			},
		})
		member := clusters.Members[0].RecordRights(t, mctest.Rights{File: "rbac/member.yaml"})
		run(hub.Config(), member.Config())
		_ = func(a *mctest.Account) bool { return len(a.Unused(t)) == 0 } // to wait for what is asked for late
	}
	_ = test
}

// Kubeconfigs of members that are well, that hang, and that refuse connections.
func ExampleKubeconfig() {
	test := func(t *testing.T, cp *mctest.ControlPlane) { //nolint:thelper // it is a test
		for _, config := range []*rest.Config{
			cp.Config(),
			{Host: "https://" + mctest.Silent(t)},
			{Host: "https://" + mctest.Address(t)},
		} {
			kubeconfig, err := mctest.Kubeconfig(config)
			if err != nil {
				t.Fatal(err)
			}
			_ = kubeconfig // goes into a Secret
		}
	}
	_ = test
}

// A program that is no test starts a fleet with New, and closes it.
func ExampleNew() {
	fleet, err := mctest.New(context.Background(), mctest.Options{Clusters: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = fleet.Close() }()

	fmt.Println("local cluster:", fleet.Local.Config().Host)
	for _, member := range fleet.Members {
		fmt.Println(member.Name, member.Config().Host)
	}
}
