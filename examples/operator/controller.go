package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	wanted   = "checksum.example.com/wanted"     // label: "true"
	checksum = "checksum.example.com/sha256"     // annotation: of the data
	author   = "checksum.example.com/written-by" // annotation: the replica, in which epoch it owned the cluster, and the version
)

// labelledOnly keeps the ConfigMaps that nobody has labelled out of caches.
func labelledOnly() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{wanted: "true"})},
	}}
}

// addChecksums adds one controller for the ConfigMaps of all members, those of now and later.
func addChecksums(mgr mcmanager.Manager) error {
	replica, err := os.Hostname() // the name of the pod
	if err != nil {
		return err
	}
	return mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(&checksums{replica: replica})
}

type checksums struct{ replica string }

// Reconcile writes the checksum of a ConfigMap, in whatever cluster that is, unless it is there.
func (c *checksums) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	member := mcreconcile.ClusterFrom(ctx).GetClient()
	configMap := &corev1.ConfigMap{}
	if err := member.Get(ctx, req.NamespacedName, configMap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	sum, err := sumOf(configMap)
	if err != nil || configMap.Annotations[checksum] == sum {
		return ctrl.Result{}, err
	}
	before := configMap.DeepCopy()
	if configMap.Annotations == nil {
		configMap.Annotations = map[string]string{}
	}
	configMap.Annotations[checksum] = sum
	configMap.Annotations[author] = fmt.Sprintf("%s in epoch %d, version %s", c.replica, mcreconcile.Epoch(ctx), released)
	ctrl.LoggerFrom(ctx).Info("Writing the checksum", "sha256", sum)
	return ctrl.Result{}, member.Patch(ctx, configMap, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// sumOf returns the SHA-256 of the data, whose keys JSON puts in order.
func sumOf(configMap *corev1.ConfigMap) (string, error) {
	data, err := json.Marshal([]any{configMap.Data, configMap.BinaryData})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
