package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Level is what a bucket costs on a scale of 181 levels, of which each eighth is twice as much. It says that to 5 %, and no level is
// a number that cannot be reckoned with.
type Level int

// The bounds of levels.
const (
	// Unmeasured is for buckets of which nobody has said anything.
	Unmeasured Level = -1
	// MaxLevel is what 1500 workers do.
	MaxLevel Level = 180
)

const (
	perOctave = 8
	leastRate = 1.0 / 4096 // that is not nothing, of level 1
)

// LevelOf returns the level that is nearest to a rate: the seconds that workers spend in a second. What is no rate is no cost.
func LevelOf(rate float64) Level {
	if math.IsNaN(rate) || rate < leastRate/2 {
		return 0
	}
	return Level(max(1, min(float64(MaxLevel), 1+math.Round(perOctave*math.Log2(rate/leastRate)))))
}

// Rate returns the seconds that workers spend in a second.
func (l Level) Rate() float64 {
	if l <= 0 {
		return 0
	}
	return leastRate * math.Exp2(float64(l-1)/perOctave)
}

// Cost is what a session says of a bucket that it owns.
type Cost struct {
	Bucket int
	Level  Level
}

// MaxCostText bounds the text of costs, in bytes. It has room for a session that owns each of MaxBuckets.
const MaxCostText = 48 << 10

const costVersion = "1:"

// EncodeCosts returns the text of costs, which are in ascending order of buckets.
func EncodeCosts(costs []Cost) string {
	packed := make([]byte, 0, 2*len(costs))
	last := 0
	for _, c := range costs {
		packed = binary.AppendUvarint(packed, uint64(c.Bucket-last)) //nolint:gosec // Ascending.
		packed = append(packed, byte(c.Level))                       //nolint:gosec // MaxLevel at most.
		last = c.Bucket
	}
	return costVersion + base64.RawStdEncoding.EncodeToString(packed)
}

// DecodeCosts reads what EncodeCosts wrote, and refuses everything else.
func DecodeCosts(text string) ([]Cost, error) {
	if len(text) > MaxCostText {
		return nil, fmt.Errorf("the costs have %d bytes, of which %d are allowed", len(text), MaxCostText)
	}
	encoded, known := strings.CutPrefix(text, costVersion)
	if !known {
		return nil, errors.New("the costs are not of a version that is known")
	}
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("the costs: %w", err)
	}
	costs := make([]Cost, 0, len(raw)/2)
	numbers := packed(raw)
	for b := 0; len(numbers) > 0; {
		step, err := numbers.next(MaxBuckets - 1 - b)
		if err != nil {
			return nil, fmt.Errorf("the bucket after bucket %d of which a cost is said: %w", b, err)
		}
		if step == 0 && len(costs) > 0 {
			return nil, fmt.Errorf("two costs of bucket %d", b)
		}
		b += step
		if len(numbers) == 0 || Level(numbers[0]) > MaxLevel {
			return nil, fmt.Errorf("the cost of bucket %d is none", b)
		}
		costs = append(costs, Cost{b, Level(numbers[0])})
		numbers = numbers[1:]
	}
	return costs, nil
}
