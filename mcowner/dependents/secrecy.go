package dependents

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// unquoted returns an error about an object of a cluster, in these states, as it may be shown. API servers, webhooks and policies may quote what a
// Secret holds, and whoever reads the owner's status or events may not be allowed to read Secrets.
func unquoted(k remote.Kind, at remote.Session, err error, states ...client.Object) error {
	if err == nil || k.GroupKind() != remote.SecretKind {
		return err
	}
	text := err.Error()
	for _, obj := range states {
		if obj != nil && quotes(text, obj) {
			return remote.Withheld(err, fmt.Sprintf("%s of %s: the answer quotes what it holds", k.Describe(obj), at))
		}
	}
	return err
}

// shortestSecret is how many bytes of a value are looked for: texts have shorter ones by accident. longestQuoted is how many of a longer
// one are, as messages cut long values.
const (
	shortestSecret = 4
	longestQuoted  = 12
)

// quotes reports whether a text has a value of a Secret, or its beginning, as it is, escaped or encoded.
func quotes(text string, secret client.Object) bool {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return true // for all that is known
	}
	for _, value := range append(valuesOf(content["data"]), valuesOf(content["stringData"])...) {
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err == nil && has(text, string(decoded)) || has(text, value) || has(text, base64.StdEncoding.EncodeToString([]byte(value))) {
			return true
		}
	}
	return false
}

func has(text, value string) bool {
	return len(value) >= shortestSecret && slices.ContainsFunc(written(value), func(form string) bool {
		return strings.Contains(text, form[:min(len(form), longestQuoted)])
	})
}

// written returns the beginning of a value, as it is and as texts escape it: field errors quote as Go does, others as JSON does.
func written(value string) []string {
	value = value[:min(len(value), longestQuoted+utf8.UTFMax)] // which no form makes shorter, and which ends no rune that counts
	forms := []string{value, within(strconv.Quote(value)), within(strconv.QuoteToASCII(value))}
	for _, escaped := range []bool{true, false} {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(escaped)
		if err := encoder.Encode(value); err == nil {
			forms = append(forms, within(strings.TrimSuffix(text.String(), "\n")))
		}
	}
	return forms
}

// within returns what is between quotes.
func within(quoted string) string { return quoted[1 : len(quoted)-1] }

// valuesOf returns all values within a field, whatever they are. Keys are no secrets.
func valuesOf(field any) []string {
	switch field := field.(type) {
	case nil:
		return nil
	case map[string]any:
		var all []string
		for _, value := range field {
			all = append(all, valuesOf(value)...)
		}
		return all
	case []any:
		var all []string
		for _, value := range field {
			all = append(all, valuesOf(value)...)
		}
		return all
	default:
		return []string{fmt.Sprint(field)}
	}
}
