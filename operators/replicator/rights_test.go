package main

import (
	"os"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// hubRights are those in the hub. One replica runs in the tests, and its Replicators are in one namespace.
func hubRights() mctest.Rights {
	needed := map[string]string{}
	add(needed, "no cluster is given up here: package dependents has tests of that", "configmaps in fleet", "get", "create", "patch")
	add(needed, "as examples/operator shows, for replicas that share members", "leases.coordination.k8s.io in fleet", "get", "list", "watch", "create", "update", "delete")
	add(needed, "as of Leases", "events in fleet", "create", "patch")
	add(needed, "of kubeconfigs, also where nothing gives sources", "secrets in fleet", "list", "watch")
	add(needed, "as examples/operator shows of kubeconfigs that are broken, and of Replicators in other namespaces", "events.events.k8s.io", "create", "patch")
	add(needed, "of Replicators in other namespaces", "dependentslices.dependents.fleet-runtime.dev", "get", "create", "update", "patch", "delete")
	add(needed, "in other namespaces", "replicators.replicator.fleet-runtime.dev", "get", "patch")
	add(needed, "in other namespaces", "replicators.replicator.fleet-runtime.dev/status", "patch")
	add(needed, "as examples/operator shows, for readers of metrics", "tokenreviews.authentication.k8s.io", "create")
	add(needed, "as of tokenreviews", "subjectaccessreviews.authorization.k8s.io", "create")
	return mctest.Rights{File: "config/hub.yaml", Needed: needed}
}

// memberRights are those in members, for all kinds that Replicators may have.
func memberRights() mctest.Rights {
	needed := map[string]string{}
	for kind := range strings.FieldsSeq(`configmaps secrets services serviceaccounts persistentvolumeclaims limitranges resourcequotas deployments.apps
		statefulsets.apps daemonsets.apps jobs.batch cronjobs.batch ingresses.networking.k8s.io networkpolicies.networking.k8s.io
		horizontalpodautoscalers.autoscaling poddisruptionbudgets.policy`) {
		add(needed, "the tests have objects of a few kinds, in one namespace", kind, "get", "list", "watch")
	}
	add(needed, "with createNamespace, whether one is there that has not the fleet's label", "namespaces", "get")
	return mctest.Rights{File: "config/member.yaml", Needed: needed}
}

func add(to map[string]string, why, what string, verbs ...string) {
	for _, verb := range verbs {
		to[verb+" "+what] = why
	}
}

// TestTenantsMayNotWriteWhatBoundsThem: a Replicator may take over what is nobody's.
func TestTenantsMayNotWriteWhatBoundsThem(t *testing.T) {
	t.Parallel()
	rights, err := os.ReadFile("config/tenant.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range []string{"resourcequotas", "limitranges", `"*"`} {
		if strings.Contains(string(rights), bound) {
			t.Errorf("config/tenant.yaml gives %s", bound)
		}
	}
}
