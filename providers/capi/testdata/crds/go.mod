// A module without code, for the file with Cluster API's CRD: sigs.k8s.io/cluster-api/api, which has the types, lacks it.
// Its version is that of the types. If you change it, the tests complete go.sum.
module github.com/fleet-runtime/fleet-runtime/providers/capi/testdata/crds

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
