package rbacfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// edit changes the rules of a role: what is not kept goes, and what is added comes to the rule that is about the same resource
// alone, or else into rules at the end. Rules that stay the same stay as they are written, and so does the rest of the document.
func (d *document) edit(rules []rbacv1.PolicyRule, keep func(rights.Right) bool, add []rights.Right) error {
	want := slices.Clone(add)
	after := make([][]rbacv1.PolicyRule, len(rules)) // what comes in the place of each rule
	for i, rule := range rules {
		all := rights.Of("", rule)
		kept := slices.DeleteFunc(slices.Clone(all), func(r rights.Right) bool { return !keep(r) })
		more := about(rule, add)
		add = rights.Missing(more, add)
		want = append(want, kept...)
		after[i] = []rbacv1.PolicyRule{rule}
		if len(kept) < len(all) || len(more) > 0 {
			after[i] = rights.Rules(append(kept, more...))
		}
	}
	before := d.text
	d.write(rules, after, rights.Rules(add))
	changed, err := parse(d.text)
	if err == nil && !slices.Equal(rulesOf(changed), rights.Missing(nil, want)) {
		err = errors.New("its rules are written in a way that is not understood")
	}
	if err != nil {
		d.text = before
		return fmt.Errorf("changing the %s %s: %w; change it by hand", d.object.GetKind(), d.object.GetName(), err)
	}
	*d = *changed
	return nil
}

// about returns those of add that belong to a rule about one resource.
func about(rule rbacv1.PolicyRule, add []rights.Right) []rights.Right {
	if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.ResourceNames) > 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(add), func(r rights.Right) bool {
		return r.URL != "" || r.Name != "" || r.Group != rule.APIGroups[0] || r.Resource != rule.Resources[0]
	})
}

func rulesOf(d *document) []rights.Right {
	f := &File{documents: []*document{d}}
	if f.readGrants() != nil || len(f.grants) != 1 {
		return nil
	}
	return rights.Of("", f.grants[0].Rules...)
}

// write writes the rules in the place of those that are there.
func (d *document) write(before []rbacv1.PolicyRule, after [][]rbacv1.PolicyRule, more []rbacv1.PolicyRule) {
	lines := slices.Collect(strings.Lines(d.text))
	key, value := field(d.node, "rules")
	if key == nil {
		if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
			lines[n-1] += "\n"
		}
		d.text = strings.Join(lines, "") + "rules:\n" + render(more, "", comments{})
		return
	}
	end := max(lastLine(value), key.Line)
	inBlocks := value.Kind == yamlv3.SequenceNode && value.Style&yamlv3.FlowStyle == 0 && len(value.Content) == len(before)
	indent := strings.Repeat(" ", key.Column-1)
	var body strings.Builder
	at := key.Line // lines until here are written
	for i := range before {
		if !inBlocks {
			body.WriteString(render(after[i], indent, comments{}))
			continue
		}
		item := value.Content[i]
		indent = strings.Repeat(" ", max(0, item.Column-3))
		last := lastLine(item)
		text := strings.Join(lines[at:last], "")
		if !slices.EqualFunc(after[i], before[i:i+1], sameRule) {
			text = render(after[i], indent, commentsOf(item, lines[at:item.Line-1]))
		}
		body.WriteString(text)
		at = last
	}
	body.WriteString(render(more, indent, comments{}))
	head := "rules:\n"
	if inBlocks {
		head = lines[key.Line-1][key.Column-1:]
	}
	if body.Len() == 0 {
		head = "rules: []\n"
	} else if !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	d.text = strings.Join(lines[:key.Line-1], "") + lines[key.Line-1][:key.Column-1] + head + body.String() + strings.Join(lines[end:], "")
}

func sameRule(a, b rbacv1.PolicyRule) bool {
	return slices.Equal(rights.Of("", a), rights.Of("", b))
}

// field returns the key and the value of a field, nil if there is none.
func field(mapping *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func lastLine(node *yamlv3.Node) int {
	last := node.Line
	for _, child := range node.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// comments are those of a rule: the lines above it, and what stands behind its lists.
type comments struct {
	above  string
	behind map[string]string // by the name of the list
}

func commentsOf(item *yamlv3.Node, above []string) comments {
	c := comments{above: strings.Join(above, ""), behind: map[string]string{}}
	for i := 0; i+1 < len(item.Content); i += 2 {
		key, value := item.Content[i], item.Content[i+1]
		all := append(make([]string, 0, 2+len(value.Content)), key.LineComment, value.LineComment)
		for _, one := range value.Content {
			all = append(all, one.LineComment)
		}
		c.behind[key.Value] = strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " ")
	}
	return c
}

// render writes rules as the items of a list. The comments are those of the first; they go with it if there is none.
func render(rules []rbacv1.PolicyRule, indent string, c comments) string {
	var text strings.Builder
	for i, rule := range rules {
		if i == 0 {
			text.WriteString(c.above)
		}
		begin := indent + "- "
		for _, list := range []struct {
			name   string
			values []string
		}{
			{"apiGroups", rule.APIGroups},
			{"resources", rule.Resources},
			{"resourceNames", rule.ResourceNames},
			{"nonResourceURLs", rule.NonResourceURLs},
			{"verbs", rule.Verbs},
		} {
			if len(list.values) == 0 {
				continue
			}
			text.WriteString(begin + list.name + ": " + inline(list.values))
			if comment := c.behind[list.name]; comment != "" && i == 0 {
				text.WriteString(" " + comment)
			}
			text.WriteString("\n")
			begin = indent + "  "
		}
	}
	return text.String()
}

func inline(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// isPlain are texts that YAML takes for texts, but for some words.
var isPlain = regexp.MustCompile(`^[a-z][a-z0-9./-]*$`)

func quote(text string) string {
	if isPlain.MatchString(text) && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}, text) {
		return text
	}
	content, err := json.Marshal(text)
	if err != nil { // no text has one
		return fmt.Sprintf("%q", text)
	}
	return string(content)
}
