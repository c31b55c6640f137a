// Package mctest runs fleets of real control planes, an etcd and a kube-apiserver each, for tests of multi-cluster
// controllers and for demonstrations. It is built on controller-runtime's envtest, and adds what tests of fleets need:
// several clusters at once that tests share, and clusters that break and are repaired.
//
// # Setup
//
// The programs are looked for in the folder that KUBEBUILDER_ASSETS names; without it, in what
//
//	go run github.com/fleet-runtime/fleet-runtime/hack/assets@latest
//
// has provided, then in what setup-envtest has installed, the newest version first. Linux and macOS are supported.
//
// # Usage
//
// Tests of a package share control planes through a [Pool]:
//
//	var pool mctest.Pool
//
//	func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }
//
//	func TestMemberComesBack(t *testing.T) {
//		fleet := pool.Start(t, mctest.Options{Clusters: 2})
//		// Start the manager against fleet.Local.Config(), report fleet.Members to it.
//		fleet.Members[0].Stop(t)
//		// The other member is still served.
//		fleet.Members[0].Restart(t)
//		// This one is served again.
//	}
//
// [Pool.Share] is one control plane that parallel tests use at once, each in namespaces of its own. [Start] gives a test
// control planes of its own, and [New] gives them to a program that is no test.
//
// Members that are broken in other ways: [ControlPlane.Freeze] makes one hang, [Silent] is one that never answered,
// one at [Address] refuses connections, [ControlPlane.AddUser] gives credentials that lack rights, and [Process.Stop] of
// [ControlPlane.Etcd] leaves an API server that answers with errors. [ControlPlane.RestartWith] is for those that are configured
// otherwise, such as ones that trust tokens of another cluster.
//
// # What it costs
//
// A control plane starts in about two seconds on two cores, and takes 300 MB of memory. A pool makes one look new in
// a tenth of a second, and a little more for each CRD and for hundreds of objects.
//
// There are no controllers: nobody creates the pods of a Deployment, collects garbage, or ends a namespace that is deleted.
// Tests play that part, or run Kubernetes' own controllers with [ControlPlane.StartControllerManager].
//
// # What remains
//
// Nothing. Every control plane has a small process beside it that waits for the end of the test binary, however that comes,
// and then kills what still runs and removes the files.
package mctest
