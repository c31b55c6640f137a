package rollout

import "k8s.io/apimachinery/pkg/util/intstr"

// Policy says how many clusters are changed at once, and when it ends.
type Policy struct {
	// MaxParallel is a number, or a percentage of the targets, rounded up. It was validated. The zero value is no limit.
	MaxParallel intstr.IntOrString
	// HaltAfter is after how many failed clusters no further one is changed. Zero is never.
	HaltAfter int
}

// most returns how many of so many targets are changed at once.
func (p Policy) most(targets int) int {
	if p.MaxParallel == (intstr.IntOrString{}) {
		return max(1, targets)
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(&p.MaxParallel, targets, true)
	return max(1, n)
}

// limits reports whether fewer clusters are changed at once than there are targets.
func (p Policy) limits(targets func() int) bool {
	if p.MaxParallel == (intstr.IntOrString{}) {
		return false
	}
	n := targets()
	return p.most(n) < n
}
