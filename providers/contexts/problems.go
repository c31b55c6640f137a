package contexts

import (
	"cmp"
	"errors"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// ReasonNotWatched is the reason of a [fleet.Problem] about files of which changes are not noticed at once. They are read
// every [Provider.Interval] nevertheless.
const ReasonNotWatched = "NotWatched"

// problems are what cannot be used, and why.
type problems map[string]problem

type problem struct {
	reason string
	err    error
}

// add adds a problem, unless err is nil.
func (p problems) add(what string, err error) {
	switch {
	case errors.Is(err, fleet.ErrInvalidMember):
		p.addFor(objects.ReasonInvalidMember, what, err)
	case err != nil:
		p.addFor(reasonOf(err), what, err)
	}
}

func (p problems) addFor(reason, what string, err error) { p[what] = problem{reason, err} }

// reasonOf returns the reason that an error brings along, or else that nothing could be read.
func reasonOf(err error) string {
	var with interface{ Reason() string }
	if errors.As(err, &with) {
		return cmp.Or(with.Reason(), objects.ReasonNotDescribed)
	}
	return objects.ReasonNotDescribed
}

// tell reports the problems, and that those of before which are gone have ended.
func (p problems) tell(members fleet.Members, before problems) {
	for what, now := range p {
		members.SetProblem(fleet.Problem{Provider: providerName, About: what, Reason: now.reason, Message: now.err.Error()})
	}
	for what := range before {
		if _, still := p[what]; !still {
			members.SetProblem(fleet.Problem{Provider: providerName, About: what})
		}
	}
}
