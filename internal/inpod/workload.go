package inpod

import (
	"os"
	"regexp"
)

// Kubernetes makes the names of pods from these characters, which spell no words:
// https://pkg.go.dev/k8s.io/apimachinery/pkg/util/rand#SafeEncodeString
const safe = "[bcdfghjklmnpqrstvwxz2456789]"

var (
	ofDeployment  = regexp.MustCompile("^(.+)-(" + safe + "{6,10})-" + safe + "{5}$")
	ofStatefulSet = regexp.MustCompile("^(.+)-[0-9]+$")
)

// Workload returns the name of the Deployment or StatefulSet that a pod belongs to, as the pod's name tells, and the hash of
// the ReplicaSet, which is empty for a StatefulSet. The answer is false for other pods.
func Workload(pod string) (name, revision string, ok bool) {
	if parts := ofDeployment.FindStringSubmatch(pod); parts != nil {
		return parts[1], parts[2], true
	}
	if parts := ofStatefulSet.FindStringSubmatch(pod); parts != nil {
		return parts[1], "", true
	}
	return "", "", false
}

// Name returns the name of the pod that the program runs in: that of the environment variable POD_NAME, or else that of the host,
// which is the same unless the pod has its own host name or the host's network.
func Name() (string, error) {
	if own := os.Getenv("POD_NAME"); own != "" {
		return own, nil
	}
	return os.Hostname()
}
