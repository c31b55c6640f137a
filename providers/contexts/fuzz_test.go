package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// FuzzReader reads two files of any content.
func FuzzReader(f *testing.F) {
	good := "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
		"clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: x}}]\nusers: [{name: a, user: {tokenFile: x}}]"
	for _, content := range []string{
		good, "", "{}", "users: [{name: a, user: null}, null]\ncontexts: [{name: a}]\ncurrent-context: a",
		"contexts: [{name: \"a\\x00b\", context: null}]\nclusters: [null]",
	} {
		f.Add([]byte(content), []byte(good))
	}
	dir := f.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for path, content := range map[string][]byte{one: first, two: second} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []Provider{
			{Kubeconfig: one + string(os.PathListSeparator) + two}, {Files: []string{dir}},
		} {
			r, err := newReader(p)
			if err != nil {
				t.Fatal(err)
			}
			for name, found := range r.read().members {
				if m := found.member; m.Name != name || (m.Err == nil) != (m.Config != nil) || (m.Err == nil) != (m.Revision != "") {
					t.Errorf("the member %q is %+v", name, m)
				} else if m.Err != nil && strings.ContainsFunc(m.Err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("there are characters in the error that do not print: %q", m.Err)
				}
			}
		}
	})
}
