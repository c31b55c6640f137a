package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ObjectName returns the name of the Member of a cluster: the cluster's own where an object may have it, and otherwise what is
// legible of it with a hash. No two clusters have the same.
func ObjectName(clusterName string) string {
	if len(validation.IsDNS1123Subdomain(clusterName)) == 0 && !looksMade(clusterName) {
		return clusterName
	}
	sum := sha256.Sum256([]byte(clusterName))
	legible := strings.Map(legible, strings.ToLower(clusterName))
	legible = strings.Trim(legible[:min(len(legible), longestLegible)], "-")
	if legible == "" {
		legible = "member"
	}
	return legible + infix + hex.EncodeToString(sum[:hashed])
}

const (
	infix          = "--"
	hashed         = 8 // bytes of the hash
	longestLegible = 100
)

func legible(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// looksMade reports whether a name could be that of another cluster's Member.
func looksMade(name string) bool {
	at := strings.LastIndex(name, infix)
	return at >= 0 && len(name)-at-len(infix) == hex.EncodedLen(hashed)
}
