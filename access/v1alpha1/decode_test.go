package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// TestWhateverIsStoredOfAnImportIsDecoded, and as much as can be of a spec.
func TestWhateverIsStoredOfAnImportIsDecoded(t *testing.T) {
	t.Parallel()
	for text, decodes := range map[string]bool{
		`{"clusterName":"a","expirationSeconds":600}`:                       true,
		`{"expirationSeconds":600.0000001,"clusterName":"a"}`:               false,
		`{"expirationSeconds":1e300,"namespace":[],"clusterName":"a"}`:      false,
		`{"clusterName":"a","secretName":{"a":"b"},"expirationSeconds":""}`: false,
	} {
		list := v1alpha1.ServiceAccountImportList{}
		stored := `{"items":[{"spec":` + text + `,"status":{"conditions":[{"lastTransitionTime":"2026-01-01t00:00:00z"}]}}]}`
		must(t, json.Unmarshal([]byte(stored), &list))
		spec := list.Items[0].Spec
		if spec.ClusterName != "a" || (spec.DecodeError == "") != decodes || len(list.Items[0].Status.Conditions) != 0 {
			t.Errorf("%s is decoded as %+v", text, list.Items[0])
		}
	}
}
