package v1alpha1

import jsonutil "k8s.io/apimachinery/pkg/util/json"

// What the hub has stored is always decoded: one Replicator that is not would fail the list of all, in each replica, until somebody changes it. An API
// server may take 1.0000000001 for an integer, and times that Go does not, such as 2026-01-01t00:00:00z. An older CRD may have taken other things.

// mostOfError is how many bytes are kept of why a spec cannot be decoded, which quotes numbers of it.
const mostOfError = 256

// UnmarshalJSON decodes a spec. Of one that cannot be decoded it keeps the deletion policy, which is Orphan if that cannot be decoded either.
func (s *Spec) UnmarshalJSON(text []byte) error {
	type spec Spec // without this function
	decoded := spec{}
	if err := jsonutil.Unmarshal(text, &decoded); err != nil {
		kept := struct {
			DeletionPolicy DeletionPolicy `json:"deletionPolicy"`
		}{}
		if jsonutil.Unmarshal(text, &kept) != nil {
			kept.DeletionPolicy = DeletionOrphan
		}
		why := err.Error()
		decoded = spec{DeletionPolicy: kept.DeletionPolicy, DecodeError: why[:min(len(why), mostOfError)]}
	}
	*s = Spec(decoded)
	return nil
}

// UnmarshalJSON decodes a status. Of one that cannot be decoded, all counts are -1: no field is as in a right one, so that a patch to that has all of
// them, and nothing stays that cannot be decoded.
func (s *Status) UnmarshalJSON(text []byte) error {
	type status Status // without this function
	decoded := status{}
	if jsonutil.Unmarshal(text, &decoded) != nil {
		decoded = status{
			Targets: -1, Synced: -1, Pending: -1, Failed: -1, Unreachable: -1, NotReady: -1, Leaving: -1, NotSyncedIn: "unknown",
		}
	}
	*s = Status(decoded)
	return nil
}
