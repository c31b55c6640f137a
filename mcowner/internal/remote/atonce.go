package remote

// AtOnce is how many clusters are worked on side by side.
const AtOnce = 16
