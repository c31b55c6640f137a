package protocol

import "math"

const (
	// WeightUnit is the weight of the average member, where costs are measured.
	WeightUnit = 1000
	// idleRate is what a member costs at which nothing is done, at least: it is connected, watched and probed.
	idleRate = 0.001
)

// Load is what a bucket has.
type Load struct {
	// Labelled is the sum of the weights that labels say.
	Labelled int64
	// Measured is how many members have no such label, so that their cost counts.
	Measured int
	// Level is what these cost together.
	Level Level
}

// Weigh returns the weight of each bucket. A member weighs by its label, in units of WeightUnit, or else by what it costs. Of that,
// a half or more is the same for all: that a member is there. So the average member weighs a unit, and none weighs
// less than half of one, whatever is said of costs: those that own idle members have no more than twice as many. A bucket whose
// costs nobody says has the average.
func Weigh(loads []Load) []int64 {
	mean, members := 0.0, 0
	for _, l := range loads {
		if l.Level != Unmeasured {
			mean += l.Level.Rate()
			members += l.Measured
		}
	}
	mean /= float64(max(1, members))
	base := max(idleRate, mean)
	weights := make([]int64, len(loads))
	for i, l := range loads {
		units := float64(l.Measured)
		if l.Level != Unmeasured {
			units = (units*base + l.Level.Rate()) / (base + mean)
		}
		weights[i] = WeightUnit*l.Labelled + int64(math.Round(WeightUnit*units))
	}
	return weights
}
