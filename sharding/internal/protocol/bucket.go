package protocol

import "github.com/cespare/xxhash/v2"

// Bucket returns the bucket of a member's key. It is the same for all replicas and for as long as a table lives.
func Bucket(key string, buckets int) int {
	return int(xxhash.Sum64String(key) % uint64(buckets)) //nolint:gosec // A table has at least one bucket.
}
