package v1alpha1

import jsonutil "k8s.io/apimachinery/pkg/util/json"

// What the hub has stored of an import is always decoded: one that is not would fail the list of all. An API server may take 600.0000001 for an integer.

// mostOfError is how many bytes are kept of why a spec cannot be decoded, which quotes numbers of it.
const mostOfError = 256

// UnmarshalJSON decodes a spec. Of one that cannot be decoded it keeps what can, such as where the import is from.
func (s *ServiceAccountImportSpec) UnmarshalJSON(text []byte) error {
	type spec ServiceAccountImportSpec // without this function
	decoded := spec{}
	if err := jsonutil.Unmarshal(text, &decoded); err != nil {
		why := err.Error()
		decoded.DecodeError = why[:min(len(why), mostOfError)]
	}
	*s = ServiceAccountImportSpec(decoded)
	return nil
}

// UnmarshalJSON decodes a status. One that cannot be decoded counts as empty, and the controller writes it anew, whole.
func (s *ServiceAccountImportStatus) UnmarshalJSON(text []byte) error {
	type status ServiceAccountImportStatus // without this function
	decoded := status{}
	if jsonutil.Unmarshal(text, &decoded) != nil {
		decoded = status{Undecoded: true}
	}
	*s = ServiceAccountImportStatus(decoded)
	return nil
}
