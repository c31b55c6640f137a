package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// sampleSize bounds a sample, so that it takes at most 86 bytes of a Lease.
const sampleSize = 16

// Sample tells which members a replica knows, in short: it has the least hashes of them, in ascending order. Replicas that know
// nearly the same members have nearly the same sample, however many members there are.
type Sample []uint32

// HashMember returns the hash of a member for samples. Replicas that share it see the same key and pool too.
func HashMember(name, key, pool string) uint32 {
	return uint32(xxhash.Sum64String(name+"\x00"+key+"\x00"+pool) >> 32)
}

// NewSample returns the sample of members that have these hashes.
func NewSample(hashes iter.Seq[uint32]) Sample {
	var s Sample
	for hash := range hashes {
		at, known := slices.BinarySearch(s, hash)
		if known || at == sampleSize {
			continue
		}
		s = slices.Insert(s, at, hash)
		s = s[:min(len(s), sampleSize)]
	}
	return s
}

// Encode returns the text of a sample, which DecodeSample reads.
func (s Sample) Encode() string {
	var packed []byte
	for _, hash := range s {
		packed = binary.BigEndian.AppendUint32(packed, hash)
	}
	return base64.RawStdEncoding.EncodeToString(packed)
}

// DecodeSample reads what Encode wrote, and refuses everything else.
func DecodeSample(text string) (Sample, error) {
	if most := base64.RawStdEncoding.EncodedLen(4 * sampleSize); len(text) > most {
		return nil, fmt.Errorf("the sample of members has %d bytes, of which %d are allowed", len(text), most)
	}
	packed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("the sample of members is no base64: %w", err)
	}
	var s Sample
	for ; len(packed) >= 4; packed = packed[4:] {
		hash := binary.BigEndian.Uint32(packed)
		if len(s) > 0 && hash <= s[len(s)-1] {
			return nil, errors.New("the sample of members is not in ascending order")
		}
		s = append(s, hash)
	}
	if len(packed) > 0 {
		return nil, fmt.Errorf("the sample of members has %d bytes too many", len(packed))
	}
	return s, nil
}

// Compare estimates how much two samples have in common: of the least hashes that either has, as many as a sample has at most, it returns how
// many both have.
func (s Sample) Compare(with Sample) (both, of int) {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(s, with))))
	all = all[:min(len(all), sampleSize)]
	for _, hash := range all {
		_, one := slices.BinarySearch(s, hash)
		_, other := slices.BinarySearch(with, hash)
		if one && other {
			both++
		}
	}
	return both, len(all)
}
