package contexts

import (
	"maps"
	"slices"

	"github.com/go-logr/logr"
)

// problems are what cannot be used, and why.
type problems map[string]error

// add adds a problem, unless err is nil.
func (p problems) add(what string, err error) {
	if err != nil {
		p[what] = err
	}
}

// tell logs what is new since before: each problem when it comes, and when it is gone.
func (p problems) tell(log logr.Logger, before problems) {
	for _, what := range slices.Sorted(maps.Keys(p)) {
		if old := before[what]; old == nil || old.Error() != p[what].Error() {
			log.Info("Cannot be used", "what", what, "error", p[what].Error())
		}
	}
	for _, what := range slices.Sorted(maps.Keys(before)) {
		if p[what] == nil {
			log.Info("No longer a problem", "what", what)
		}
	}
}
