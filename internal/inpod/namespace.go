// Package inpod knows where a program runs that runs in a pod.
package inpod

import (
	"fmt"
	"os"
	"strings"
)

// NamespaceFile is where a pod has the name of its namespace:
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace that the program runs in: that of the environment variable POD_NAMESPACE, or that in the
// file, which is [NamespaceFile] but in tests.
func Namespace(file string) (string, error) {
	if own := os.Getenv("POD_NAMESPACE"); own != "" {
		return own, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // a constant, but in tests
	if err != nil {
		return "", fmt.Errorf("finding the namespace that the program runs in: %w; outside a pod, set the environment variable POD_NAMESPACE", err)
	}
	return strings.TrimSpace(string(text)), nil
}
