package main

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestPoliciesApplyWhereTheyAreMeantTo, with the rights of the manifests and no others, also while the program does not run.
func TestPoliciesApplyWhereTheyAreMeantTo(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	production, staging := f.Members[0], f.Members[1]
	needed := unasked("", "configmaps")
	needed["create configmaps"] = "no cluster is given up here: package dependents has tests of that"
	local := stage.NewAccount(t, f.Local, mctest.Rights{File: "rbac/controller.yaml", Needed: needed})
	rights := mctest.Rights{File: "rbac/member.yaml", Needed: unasked(".admissionregistration.k8s.io",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")}
	member, other := stage.NewAccount(t, production, rights), stage.NewAccount(t, staging, rights)
	described := stage.Join(t, f.Local, "production", member.Kubeconfig(t), map[string]string{"tier": "production"}, objects.LeaveFinalizer)
	stage.Join(t, f.Local, "staging", other.Kubeconfig(t), nil)
	stage.Apply(t, f.Local, "policies.yaml")
	p := stage.Start(t, "--kubeconfig", local.File(t), "--metrics", "0")
	stage.Soon(t, "many replicas are refused in production", func() bool { return refused(t, production) })
	stage.Soon(t, "ConfigMaps of production are seen", func() bool { return seen(t, production) })
	if refused(t, staging) || seen(t, staging) {
		t.Error("a policy of production applies in staging")
	}
	p.Kill()
	if !refused(t, production) || !seen(t, production) {
		t.Error("policies do not apply while the program does not run")
	}
	stage.Start(t, "--kubeconfig", local.File(t), "--metrics", "0")
	policies := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "production"}}
	if err := f.Local.Client().Delete(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	stage.Soon(t, "the policies are gone with their ConfigMap", func() bool { return !refused(t, production) && !seen(t, production) })
	stage.Soon(t, "the ConfigMap is gone", func() bool {
		return apierrors.IsNotFound(f.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(policies), policies))
	})
	stage.Apply(t, f.Local, "policies.yaml")
	stage.Soon(t, "the policies are back", func() bool { return refused(t, production) && seen(t, production) })
	stage.Leave(t, f.Local, described)
	stage.Soon(t, "a member that has left has no policies", func() bool { return !refused(t, production) && !seen(t, production) })
	local.NeedsAll(t)
	member.NeedsAll(t)
}

// unasked returns the rights to get objects, which are asked for where a watch and the API server do not agree.
func unasked(group string, resources ...string) map[string]string {
	needed := map[string]string{}
	for _, resource := range resources {
		needed["get "+resource+group] = "what the cache does not know is read before something is done about it"
	}
	return needed
}

// refused reports whether a Deployment with many replicas is refused. Nothing is stored.
func refused(t *testing.T, cp *mctest.ControlPlane) bool {
	t.Helper()
	labels := map[string]string{"app": "many"}
	err := cp.Client().Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(9)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}},
	}, client.DryRunAll)
	if err != nil && !strings.Contains(err.Error(), "production has room for five replicas") {
		t.Fatal(err)
	}
	return err != nil
}

// seen reports whether a ConfigMap is changed when it is created. Nothing is stored.
func seen(t *testing.T, cp *mctest.ControlPlane) bool {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}
	if err := cp.Client().Create(t.Context(), cm, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	return cm.Labels["seen"] == "yes"
}

func TestNothingButPoliciesIsPutIntoMembers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ConfigMap", "ValidatingWebhookConfiguration"} {
		policies, err := policiesOf(&corev1.ConfigMap{Data: map[string]string{"a": "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind}})
		if err != nil || len(policies) != 1 {
			t.Fatal(policies, err)
		}
		if onlyPolicies(policies[0].GetObjectKind().GroupVersionKind()) == nil {
			t.Errorf("a %s is taken for a policy", kind)
		}
	}
}
