package command

import (
	"path/filepath"
	"regexp"
	"strings"
)

const (
	ownName    = "mcctl"
	pluginName = "kubectl mcctl"
)

// callName is how the caller calls the program.
type callName string

// newCallName returns the name for a path by which the program was started.
func newCallName(path string) callName {
	if strings.HasPrefix(filepath.Base(path), "kubectl-") {
		return pluginName
	}
	return ownName
}

// commandIn is a command in a text.
var commandIn = regexp.MustCompile(
	`(kubectl )?\bmcctl (join|leave|list|describe|check|rbac|shards|token|federate|version|pause|resume|drain|undrain|help)\b`)

// in returns a text with the commands as the caller may type them.
func (n callName) in(text string) string {
	if n == ownName {
		return text
	}
	return commandIn.ReplaceAllString(text, string(n)+" $2")
}
