package kind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// testRules takes away one rule after the other, and starts the operator anew: it is noticed each time.
func (o *operator) testRules(t *testing.T) {
	o.scale(t, 1)
	broken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "broken", Labels: map[string]string{"fleet-runtime.dev/kubeconfig": "true"}},
		StringData: map[string]string{"kubeconfig": "this is none"}, // there is an event about it
	}
	must(t, o.hub.Create(t.Context(), broken))
	reader := o.token(t, "reader")
	key := client.ObjectKey{Namespace: namespace, Name: "operator"}

	seen := 0
	o.eachRule(t, hub, key, &rbacv1.Role{}, func(rule rbacv1.PolicyRule, pod string) error {
		seen++
		return o.says(t, pod, "forbidden", fmt.Sprintf("resource %q in API group %q", rule.Resources[0], rule.APIGroups[0]))
	})
	o.eachRule(t, hub, client.ObjectKey{Name: "fleet-reader-check"}, &rbacv1.ClusterRole{}, func(_ rbacv1.PolicyRule, pod string) error {
		seen++
		return o.answers(t, pod, reader, http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden)
	})
	o.eachRule(t, hub, client.ObjectKey{Name: "fleet-reader"}, &rbacv1.ClusterRole{}, func(_ rbacv1.PolicyRule, pod string) error {
		seen++
		return o.answers(t, pod, reader, http.StatusForbidden)
	})
	o.eachRule(t, east, client.ObjectKey{Name: "fleet-operator"}, &rbacv1.ClusterRole{}, func(rule rbacv1.PolicyRule, pod string) error {
		seen++
		if rule.Resources[0] != "namespaces" {
			return o.says(t, pod, "forbidden", fmt.Sprintf("resource %q in API group %q", rule.Resources[0], rule.APIGroups[0]))
		}
		s, err := o.shown(t, pod, reader, east)
		if err != nil || s.State != fleet.Ready || s.Identity != "" {
			return fmt.Errorf("the member is %s and has the identity %q; error %w", s.State, s.Identity, err)
		}
		return nil
	})
	if seen == 0 {
		t.Error("there was no rule")
	}
	must(t, o.hub.Delete(t.Context(), broken))
	o.scale(t, 3)
	o.works(t, "with all rules")
}

// eachRule takes away each rule of a role in turn, and gives it back when noticed returns no error.
func (o *operator) eachRule(t *testing.T, in string, key client.ObjectKey, role client.Object, noticed func(rule rbacv1.PolicyRule, pod string) error) {
	t.Helper()
	c := o.client(t, in)
	must(t, c.Get(t.Context(), key, role))
	all := slices.Clone(*rulesOf(role))
	for i, rule := range all {
		*rulesOf(role) = slices.Delete(slices.Clone(all), i, i+1)
		must(t, c.Update(t.Context(), role))
		pod := o.restart(t)
		eventually(t, fmt.Sprintf("without the right to %v of %v in %s, that is noticed", rule.Verbs, append(rule.Resources, rule.NonResourceURLs...), in),
			func() error { return noticed(rule, pod) })
	}
	*rulesOf(role) = all
	must(t, c.Update(t.Context(), role))
}

func rulesOf(role client.Object) *[]rbacv1.PolicyRule {
	if role, ok := role.(*rbacv1.ClusterRole); ok {
		return &role.Rules
	}
	return &role.(*rbacv1.Role).Rules
}

// restart replaces the only pod, and returns the next one.
func (o *operator) restart(t *testing.T) (pod string) {
	t.Helper()
	old := o.pods(t)
	o.kubectl(t, hub, "--namespace", namespace, "delete", "pod", "--selector", "app=operator", "--grace-period", "5")
	eventually(t, "a pod runs in the place of the old one", func() error {
		pods := o.pods(t)
		if len(pods) != 1 || slices.Contains(old, pods[0]) {
			return fmt.Errorf("there are %v", pods)
		}
		pod = pods[0]
		return nil
	})
	return pod
}

// says returns no error once a line of the pod's log has all of the words.
func (o *operator) says(t *testing.T, pod string, words ...string) error {
	t.Helper()
	log, err := o.try(t.Context(), "kubectl", "--context", contextOf(hub), "--namespace", namespace, "logs", pod)
	if err != nil {
		return err
	}
	for line := range strings.Lines(log) {
		line = strings.ReplaceAll(line, `\`, "") // quoted, maybe twice
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return nil
		}
	}
	return fmt.Errorf("no line has %q:\n%s", words, log)
}

// answers returns no error once the metrics are answered with one of these.
func (o *operator) answers(t *testing.T, pod, token string, want ...int) error {
	t.Helper()
	status, body, err := o.ask(t, pod, "/metrics", token)
	if err != nil {
		return err
	}
	if !slices.Contains(want, status) {
		return errors.New(http.StatusText(status) + string(body[:min(len(body), 200)]))
	}
	return nil
}

func (o *operator) scale(t *testing.T, replicas int32) {
	t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: "operator"}
	eventually(t, fmt.Sprintf("there are %d replicas", replicas), func() error { return o.scaled(t.Context(), key, replicas) })
}

func (o *operator) scaled(ctx context.Context, key client.ObjectKey, replicas int32) error {
	deployment := &appsv1.Deployment{}
	if err := o.hub.Get(ctx, key, deployment); err != nil {
		return err
	}
	if *deployment.Spec.Replicas != replicas {
		deployment.Spec.Replicas = &replicas
		if err := o.hub.Update(ctx, deployment); err != nil {
			return err
		}
	}
	if s := deployment.Status; s.ObservedGeneration != deployment.Generation || s.Replicas != replicas || s.ReadyReplicas != replicas {
		return fmt.Errorf("there are %d, of which %d are ready", s.Replicas, s.ReadyReplicas)
	}
	return nil
}
