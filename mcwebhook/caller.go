package mcwebhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// prefix begins the paths that members ask: /c/MEMBER/IDENTITY.KEY/PATH.
const prefix = "/c/"

// caller is the member that a path is of, and the webhook that it asks.
type caller struct {
	name     mcreconcile.ClusterName
	identity string // which cluster it was that was given the path
	hook     string
}

// Names may hold slashes, which API servers do not escape, and may be dots, which they take out of paths.
var (
	escapes   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapes = strings.NewReplacer("~0", "~", "~1", "/", "~2", ".")
)

func escape(name string) string {
	name = escapes.Replace(name)
	if rest, dotted := strings.CutPrefix(name, "."); dotted {
		return "~2" + rest
	}
	return name
}

// path returns the path that a member is given. The member's API server is to be the only one that knows it.
func (c caller) path(key []byte) string {
	return prefix + escape(string(c.name)) + "/" + escape(c.identity) + "." + c.proof(key) + c.hook
}

// proof returns what shows that a path was given to that cluster under that name.
func (c caller) proof(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("fleet-runtime webhook\x00" + string(c.name) + "\x00" + c.identity)) // neither may hold a zero byte
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// callerOf returns which member a path was given to with one of the keys. How long it takes tells nothing of the keys, nor of the
// members that there are.
func callerOf(path string, keys [][]byte) (c caller, authentic bool) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, prefix), "/")
	proved, hook, _ := strings.Cut(rest, "/")
	identity, proof := "", proved
	if dot := strings.LastIndexByte(proved, '.'); dot >= 0 {
		identity, proof = proved[:dot], proved[dot+1:]
	}
	c = caller{mcreconcile.ClusterName(unescapes.Replace(name)), unescapes.Replace(identity), "/" + hook}
	proven := 0
	for _, key := range keys {
		proven |= subtle.ConstantTimeCompare([]byte(c.proof(key)), []byte(proof))
	}
	return c, proven == 1 && c.name != mcreconcile.LocalCluster && !strings.Contains(string(c.name)+c.identity, "\x00")
}
