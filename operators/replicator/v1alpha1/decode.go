package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
)

// What the hub has stored is always decoded: one Replicator that is not would fail the list of all, in each replica, until somebody changes it.

// mostOfNumber is how many bytes are kept of what is no number of 32 bits.
const mostOfNumber = 64

// UnmarshalJSON decodes a rollout. What is no maxParallel, such as a number of more than 32 bits that an older CRD has taken, becomes its text: that is
// no percentage either, so nothing is done for this Replicator, and an event quotes it.
func (r *Rollout) UnmarshalJSON(text []byte) error {
	type plain Rollout // without this function
	decoded := struct {
		*plain

		MaxParallel json.RawMessage `json:"maxParallel"`
	}{plain: (*plain)(r)}
	if err := jsonutil.Unmarshal(text, &decoded); err != nil {
		return err
	}
	r.MaxParallel = nil
	if len(decoded.MaxParallel) == 0 || string(decoded.MaxParallel) == "null" {
		return nil
	}
	r.MaxParallel = &intstr.IntOrString{}
	if jsonutil.Unmarshal(decoded.MaxParallel, r.MaxParallel) != nil {
		*r.MaxParallel = intstr.FromString(fmt.Sprintf("%.*s", mostOfNumber, decoded.MaxParallel))
	}
	return nil
}

// UnmarshalJSON decodes a status. One that is none counts as empty, and the operator writes it anew: the schema of a CRD takes times that Go does
// not, such as 2026-01-01t00:00:00z, from those who may write statuses.
func (s *Status) UnmarshalJSON(text []byte) error {
	type plain Status // without this function
	decoded := plain{}
	if jsonutil.Unmarshal(text, &decoded) != nil {
		decoded = plain{}
	}
	*s = Status(decoded)
	return nil
}
