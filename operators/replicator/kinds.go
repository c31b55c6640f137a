package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are those that Replicators may bring to members, each as Deployment.apps, or *.example.com for all of a group.
type kinds []schema.GroupKind

// defaultKinds give nobody rights, and change no API.
const defaultKinds = "ConfigMap,Secret,Service,ServiceAccount,PersistentVolumeClaim,LimitRange,ResourceQuota,Deployment.apps,StatefulSet.apps," +
	"DaemonSet.apps,Job.batch,CronJob.batch,Ingress.networking.k8s.io,NetworkPolicy.networking.k8s.io," +
	"HorizontalPodAutoscaler.autoscaling,PodDisruptionBudget.policy"

func parseKinds(list string) kinds {
	var all kinds
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, schema.ParseGroupKind(name))
		}
	}
	return all
}

// allow returns nil for a kind that is among them.
func (k kinds) allow(kind schema.GroupVersionKind) error {
	if slices.Contains(k, kind.GroupKind()) || slices.Contains(k, schema.GroupKind{Group: kind.Group, Kind: "*"}) {
		return nil
	}
	return fmt.Errorf("kind %s is not allowed: the operator's flag --kinds does not name it", kind.GroupKind())
}
