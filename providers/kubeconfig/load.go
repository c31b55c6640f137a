package kubeconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
)

// MaxSize is the greatest size of a kubeconfig, in bytes. A Secret holds at most 1 MiB; the rest is for files.
const MaxSize = 16 << 20

const (
	// maxMarks is how many entries, fields and elements a kubeconfig may have, as marks counts them. It is enough for
	// 10,000 contexts.
	maxMarks = 1 << 18
	// maxDepth is how deep they may be nested.
	maxDepth = 100
)

// Load returns what a kubeconfig says, or an [Error]. It reads what strangers wrote: the time and the memory that it takes
// grow with the size of the text alone. So it refuses what kubectl takes but nothing writes: YAML aliases and merge keys,
// which stand for more than is there, YAML directives, more than 16 MiB, and what has some hundred thousand fields or is
// nested more than 100 deep.
//
// [Member] does the same before it looks for a context.
func Load(text []byte) (*clientcmdapi.Config, error) {
	whole := terms{whole: wholeKubeconfig}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, whole.invalid("it is empty")
	}
	if err := whole.checkSize(len(text)); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(text, []byte("\xff\xfe")), bytes.HasPrefix(text, []byte("\xfe\xff")):
		return nil, whole.invalid("it is UTF-16; write it as UTF-8")
	case hasDirective(text):
		return nil, whole.refused("it has YAML directives, which are lines that begin with %%")
	case marks(text) > maxMarks:
		return nil, whole.refused("it has more than about %d fields and elements", maxMarks)
	}
	asJSON, err := whole.toJSON(text)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	kind := schema.GroupVersionKind{Version: clientcmdlatest.Version, Kind: "Config"}
	switch _, _, err := decoder().Decode(asJSON, &kind, config); {
	case err == nil:
		return config, nil
	// Of the parsers' messages nothing is passed on but the line, because they quote what they have read.
	case strings.Contains(err.Error(), "duplicate name"):
		return nil, whole.invalid("two of its clusters, users or contexts have the same name")
	default:
		return nil, whole.invalid("its content %s", noKubeconfig)
	}
}

const noKubeconfig = "is no YAML or JSON of apiVersion v1, kind Config"

// decoder returns what clientcmd.Load decodes with, but for JSON alone: there is one parser of YAML for what strangers
// write, so that no second one can understand a text differently than the one that checked it.
func decoder() runtime.Decoder {
	scheme := clientcmdlatest.Scheme
	plain := runtimejson.NewSerializerWithOptions(runtimejson.DefaultMetaFactory, scheme, scheme, runtimejson.SerializerOptions{})
	return versioning.NewDefaultingCodecForScheme(scheme, plain, plain, clientcmdlatest.ExternalVersion, runtime.InternalGroupVersioner)
}

// checkSize refuses a text that is too large to be read.
func (t terms) checkSize(bytes int) error {
	if bytes > MaxSize {
		return t.refused("it has %d bytes, more than the %d that are read", bytes, MaxSize)
	}
	return nil
}

// marks counts what can begin a node in YAML: at most three nodes have one mark. Parsers make all nodes before anybody can
// count these, and a node takes a hundred times the memory of its two bytes.
func marks(text []byte) int {
	at := func(i int) byte {
		if i < 0 || i >= len(text) {
			return '\n'
		}
		return text[i]
	}
	count := 0
	for i, c := range text {
		switch c {
		case ',', '[', '{', '?':
			count++
		case ':': // not in https://x, arn:aws:eks and 10:30
			if !isWord(at(i-1)) || !isWord(at(i+1)) {
				count++
			}
		case '-': // only before white space, of which some is not ASCII
			if next := at(i + 1); next <= ' ' || next >= 0x80 {
				count++
			}
		}
	}
	return count
}

func isWord(c byte) bool {
	return c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// hasDirective reports whether there may be a YAML directive: the parser compares each with all that came before. A line
// may end in white space that is not ASCII.
func hasDirective(text []byte) bool {
	for i, c := range text {
		if c == '%' && (i == 0 || text[i-1] == '\n' || text[i-1] == '\r' || text[i-1] >= 0x80) {
			return true
		}
	}
	return false
}

// lineOf finds the line that a parser's message tells.
var lineOf = regexp.MustCompile(`line \d+`)

// toJSON returns the first document of YAML as JSON, of which YAML is a superset.
func (t terms) toJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, t.invalid("%s %s", cmp.Or(lineOf.FindString(err.Error()), "its content"), noKubeconfig)
	}
	if document.Kind == 0 {
		return nil, t.invalid("it is empty")
	}
	value, err := t.value(document.Content[0], 0)
	if err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return nil, t.invalid("its content %s", noKubeconfig)
	}
	return asJSON, nil
}

// value returns a node as encoding/json has it. Of two fields with the same name the last counts, as in kubectl.
func (t terms) value(node *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, t.refused("line %d is nested more than %d deep", node.Line, maxDepth)
	}
	switch node.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(node.Content)/2)
		for pair := range slices.Chunk(node.Content, 2) {
			key, err := t.key(pair[0])
			if err == nil {
				object[key], err = t.value(pair[1], depth+1)
			}
			if err != nil {
				return nil, err
			}
		}
		return object, nil
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, element := range node.Content {
			var err error
			if list[i], err = t.value(element, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.ScalarNode:
		return scalar(node), nil
	case yaml.AliasNode, yaml.DocumentNode: // documents have no documents
	}
	return nil, t.alias(node)
}

func (t terms) alias(node *yaml.Node) error {
	return t.refused("line %d has a YAML alias (*); write there what it stands for", node.Line)
}

// key returns the name of a field.
func (t terms) key(node *yaml.Node) (string, error) {
	switch {
	case node.Kind == yaml.AliasNode:
		return "", t.alias(node)
	case node.Kind != yaml.ScalarNode:
		return "", t.invalid("line %d %s", node.Line, noKubeconfig)
	case node.Tag == "!!merge":
		return "", t.refused("line %d has a YAML merge key (<<); write there what it stands for", node.Line)
	}
	return node.Value, nil
}

// scalar returns what a scalar means. Words such as "yes" are booleans, as to kubectl, which reads YAML 1.1.
func scalar(node *yaml.Node) any {
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return node.Value
	}
	switch node.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(node.Value, "true")
	case "!!int", "!!float":
		return number(node.Value)
	}
	if node.Style&yaml.TaggedStyle == 0 {
		switch node.Value {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false
		}
	}
	return node.Value
}

// number returns the number that a text stands for. Those that JSON does not have stay texts.
func number(text string) any {
	if whole, err := strconv.ParseInt(text, 0, 64); err == nil {
		return whole
	}
	if fraction, err := strconv.ParseFloat(text, 64); err == nil {
		return fraction
	}
	return text
}
