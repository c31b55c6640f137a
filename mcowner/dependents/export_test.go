package dependents

// SlicesOf returns slices that become as large as this, in bytes.
func SlicesOf(bytes int) *Slices { return &Slices{bytes: bytes} }
