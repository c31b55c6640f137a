// Package sweep finds dependents whose owner is gone, and removes them. Package orphans is what others see of it, and a
// dependents.Reconciler has one that it tells more.
package sweep
