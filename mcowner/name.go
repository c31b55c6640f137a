package mcowner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// suffixLength is that of the hash in a name: 48 bits, enough for thousands of dependents of a kind in a namespace.
const suffixLength = 12

// UniqueName makes a name for a dependent of what tells its owner from others, such as the owner's cluster, namespace
// and name: these joined with dashes, and a hash of them. Parts that differ make names that differ, also where the
// joined parts are equal or are cut off. The name is a DNS label of at most maxLength characters, which should be 63 or
// fewer and must be more than 13: it panics where there is no room for a hash.
func UniqueName(maxLength int, parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts)) // quoted, so that no other parts look the same
	suffix := hex.EncodeToString(sum[:])[:suffixLength]
	readable := strings.Map(dnsLabelRune, strings.ToLower(strings.Join(parts, "-")))
	readable = readable[:min(len(readable), maxLength-suffixLength-1)]
	if readable = strings.Trim(readable, "-"); readable == "" {
		return "x-" + suffix
	}
	return readable + "-" + suffix
}

// dnsLabelRune returns what stands for a character in a DNS label.
func dnsLabelRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}
