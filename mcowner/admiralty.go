package mcowner

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// admiraltyAnnotation has the controller of an object in another cluster, as written by
// https://github.com/admiraltyio/multicluster-controller. It is read, and never written.
const admiraltyAnnotation = "multicluster.admiralty.io/controller-reference"

// admiraltyReference returns the reference that Admiralty's multicluster-controller has written, nil if there is none.
func admiraltyReference(dependent client.Object) (*Reference, error) {
	content, ok := dependent.GetAnnotations()[admiraltyAnnotation]
	if !ok {
		return nil, nil //nolint:nilnil // no reference is no error
	}
	var owner struct {
		APIVersion  string                  `json:"apiVersion"`
		Kind        string                  `json:"kind"`
		Name        string                  `json:"name"`
		UID         types.UID               `json:"uid"`
		Controller  *bool                   `json:"controller"`
		ClusterName mcreconcile.ClusterName `json:"clusterName"`
		Namespace   string                  `json:"namespace"`
	}
	if err := json.Unmarshal([]byte(content), &owner); err != nil {
		return nil, err
	}
	r := &Reference{
		Cluster: owner.ClusterName, APIVersion: owner.APIVersion, Kind: owner.Kind,
		Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID,
		Controller: owner.Controller != nil && *owner.Controller,
	}
	if err := r.named(); err != nil {
		return nil, err
	}
	return r, nil
}
