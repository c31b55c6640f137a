package mcmanager

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// filter says what of a fleet is to be shown, as the query parameters state and text ask for it. The zero value lets
// everything through.
type filter struct {
	State string // a state, or notSynced
	Text  string // words that must all occur
	// Member is the one that the page is about, whatever its state and text. Empty for all.
	Member fleet.ClusterName
	words  []string
}

// notSynced is a filter beside the states: for members of which a kind is not synced, in whatever state they are.
const notSynced = fleet.ReasonNotSynced

// maxFilter is how long the text of a filter may be, in bytes.
const maxFilter = 256

// worstFirst are the states in the order in which members are shown.
func worstFirst() []fleet.State {
	return []fleet.State{
		fleet.Unreachable, fleet.Connecting, fleet.Pending, fleet.Suspended, fleet.Draining, fleet.Drained, fleet.Ready, fleet.NotOwned,
	}
}

// choices are the values that a filter's State may have.
func choices() []string {
	all := []string{""}
	for _, state := range worstFirst() {
		all = append(all, string(state))
	}
	return append(all, notSynced)
}

// filterOf reads a filter from the parameters of a request, and returns an error for what cannot be meant.
func filterOf(query url.Values) (filter, error) {
	f := filter{State: query.Get("state"), Text: query.Get("text"), Member: fleet.ClusterName(query.Get("member"))}
	if !slices.Contains(choices(), f.State) {
		return filter{}, fmt.Errorf("the parameter state is one of %s", strings.Join(choices()[1:], ", "))
	}
	if len(f.Text) > maxFilter {
		return filter{}, fmt.Errorf("the parameter text has more than %d bytes", maxFilter)
	}
	if strings.ToValidUTF8(f.Text, "") != f.Text {
		return filter{}, errors.New("the parameter text is not valid UTF-8")
	}
	f.words = strings.Fields(strings.ToLower(f.Text))
	return f, nil
}

// Query returns the parameters that ask for the filter's text, and the given state.
func (f filter) Query(state string) template.URL {
	query := url.Values{}
	if f.Text != "" {
		query.Set("text", f.Text)
	}
	if state != "" {
		query.Set("state", state)
	}
	return template.URL("?" + query.Encode()) //nolint:gosec // Encode has escaped it
}

// members returns those of a list that the filter lets through.
func (f filter) members(list []fleet.Status) []fleet.Status {
	return slices.DeleteFunc(slices.Clone(list), func(s fleet.Status) bool { return !f.hasState(s) || !f.hasWords(textOf(s)...) })
}

// problems returns those of a list that have the text. They have no state.
func (f filter) problems(list []fleet.Problem) []fleet.Problem {
	return slices.DeleteFunc(list, func(p fleet.Problem) bool {
		return !f.hasWords(p.Provider, p.About, string(p.Member), p.Reason, p.Message)
	})
}

func (f filter) hasState(s fleet.Status) bool {
	switch f.State {
	case "":
		return true
	case notSynced:
		return len(s.NotSynced) > 0
	default:
		return string(s.State) == f.State
	}
}

// hasWords reports whether each word occurs in one of the texts, in whatever case.
func (f filter) hasWords(texts ...string) bool {
	missing := slices.Clone(f.words)
	for _, text := range texts {
		if len(missing) == 0 {
			break
		}
		text = strings.ToLower(text)
		missing = slices.DeleteFunc(missing, func(word string) bool { return strings.Contains(text, word) })
	}
	return len(missing) == 0
}

// textOf returns what the page says of a member.
func textOf(s fleet.Status) []string {
	texts := make([]string, 0, 5+len(s.Labels)+len(s.NotSynced)+len(s.Duplicates))
	texts = append(texts, string(s.Name), string(s.State), s.Reason, s.Message, s.Identity)
	for name, value := range s.Labels {
		texts = append(texts, name+"="+value)
	}
	for _, n := range s.NotSynced {
		texts = append(texts, n.String())
	}
	for _, twin := range s.Duplicates {
		texts = append(texts, string(twin))
	}
	return texts
}
