package contexts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

func TestAFileThatCannotBeUsedKeepsItsMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		says    string // part of the message
		reason  string
	}{
		"cut off":      {"users:\n- name: a\n  user:\n    token: \"" + secret, "line 4", kubeconfig.ReasonInvalid},
		"empty":        {"", "empty", kubeconfig.ReasonInvalid},
		"blank":        {"\n  \n", "empty", kubeconfig.ReasonInvalid},
		"another kind": {"apiVersion: v1\nkind: Pod\nmetadata: {name: " + secret + "}", "kind Config", kubeconfig.ReasonInvalid},
		"no YAML":      {"\x00\x01" + secret, "kind Config", kubeconfig.ReasonInvalid},
		"an alias":     {"a: &a " + secret + "\nb: *a", "line 2 has a YAML alias", kubeconfig.ReasonRefused},
		"too large":    {strings.Repeat("#", kubeconfig.MaxSize+1), "more than the 16777216 bytes that are read", kubeconfig.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "broken")
			put(t, path, with("a", "b"))
			put(t, filepath.Join(dir, "good"), with("good"))
			r := start(t, contexts.Provider{Files: []string{dir}, Interval: never})
			r.waitFor("a@a", "b@b", "good@good")
			before := r.member("a")

			putText(t, path, []byte(tc.content))
			put(t, filepath.Join(dir, "later"), with("later"))
			r.waitFor("a !"+tc.reason, "b !"+tc.reason, "good@good", "later@later")
			message := r.member("a").Err.Error()
			for _, part := range []string{`context "a" of ` + path, "what it had before stays in use", tc.says} {
				if !strings.Contains(message, part) {
					t.Errorf("the error does not tell %q: %s", part, message)
				}
			}
			r.waitForLog("there is a problem", path, tc.says)

			put(t, path, with("a", "b"))
			r.waitFor("a@a", "b@b", "good@good", "later@later")
			r.waitForLog("a problem has ended", path)
			if after := r.member("a"); after.Revision != before.Revision {
				t.Error("the revision is another than before")
			}
			r.wantNoneWithdrawn()
			r.wantOneLine("there is a problem", path)
			r.wantNoSecrets(message)
		})
	}
}

// wantNoneWithdrawn fails the test if there was a removal.
func (r *running) wantNoneWithdrawn() {
	r.t.Helper()
	for _, call := range r.called() {
		if strings.HasPrefix(call, "remove") {
			r.t.Errorf("there was the call %q", call)
		}
	}
}

// wantOneLine fails the test unless one line of the log has these parts.
func (r *running) wantOneLine(parts ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.countLogged(parts...); n != 1 {
		r.t.Errorf("%d lines of the log have %q, want one", n, parts)
	}
}

// wantNoSecrets fails the test if there are credentials in the texts or in the log.
func (r *running) wantNoSecrets(texts ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range slices.Concat(texts, r.log) {
		if strings.Contains(text, secret) {
			r.t.Errorf("there are credentials in %s", text)
		}
	}
}

func TestABrokenFileOfSeveralHarmsOnlyWhatIsInIt(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	config := with("a", "mixed")
	delete(config.AuthInfos, "mixed")
	put(t, first, config)
	config = with("a", "b", "mixed")
	delete(config.Contexts, "mixed")
	put(t, second, config)
	r := start(t, contexts.Provider{Kubeconfig: first + string(os.PathListSeparator) + second, Interval: never})
	r.waitFor("a@a", "b@b", "mixed@mixed")

	putText(t, second, []byte("{"))
	r.waitFor("a@a", "b !InvalidKubeconfig", "mixed !InvalidKubeconfig")
	putText(t, first, []byte("{"))
	r.waitFor("a !InvalidKubeconfig", "b !InvalidKubeconfig", "mixed !InvalidKubeconfig")
	put(t, second, with("b", "mixed"))
	r.waitFor("a !InvalidKubeconfig", "b@b", "mixed !InvalidKubeconfig")
	put(t, first, with("a"))
	r.waitFor("a@a", "b@b", "mixed@mixed")
}

func TestABrokenFileIsRetriedAlsoIfItNeverWorked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	putText(t, path, []byte("{"))
	r := start(t, contexts.Provider{Kubeconfig: path, Contexts: []string{"a"}, Interval: never})
	r.waitFor("a !NoContext")
	message := r.member("a").Err.Error()
	for _, part := range []string{`context "a"`, path, "kind Config"} {
		if !strings.Contains(message, part) {
			t.Errorf("the error does not tell %q: %s", part, message)
		}
	}
	put(t, path, with("a"))
	r.waitFor("a@a")
	r.wantNoneWithdrawn()
}

func TestFilesThatAKubeconfigNamesAreWaitedFor(t *testing.T) {
	certificate, key := newCertificate(t)
	for _, name := range []string{"ca", "certificate", "key", "token"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			contents := map[string][]byte{"ca": certificate, "certificate": certificate, "key": key, "token": []byte("t")}
			config := with("a")
			config.Clusters["a"].CertificateAuthority = "files/ca"
			user := config.AuthInfos["a"]
			user.Token, user.TokenFile = "", "files/token"
			user.ClientCertificate, user.ClientKey = "files/certificate", "files/key"
			put(t, filepath.Join(dir, "config"), config)
			for file, content := range contents {
				if file != name {
					putText(t, filepath.Join(dir, "files", file), content)
				}
			}
			r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config"), Interval: never})
			r.waitFor("a !InvalidKubeconfig")
			missing := filepath.Join(dir, "files", name)
			if message := r.member("a").Err.Error(); !strings.Contains(message, missing) {
				t.Errorf("the error does not tell %s: %s", missing, message)
			}
			putText(t, missing, contents[name])
			r.waitFor("a@a")
			must(t, os.RemoveAll(filepath.Join(dir, "files")))
			r.waitFor("a !InvalidKubeconfig")
			for file, content := range contents {
				putText(t, filepath.Join(dir, "files", file), content)
			}
			r.waitFor("a@a")
			r.wantNoneWithdrawn()
		})
	}
}

// TestWhatIsNoFileIsNotRead: whoever reads a pipe to which nobody writes waits for ever, as for the end of some devices.
func TestWhatIsNoFileIsNotRead(t *testing.T) {
	const separator = string(os.PathListSeparator)
	for name, tc := range map[string]struct {
		provider func(dir string) contexts.Provider // beside the file "good", dir has the named pipe "pipe"
		says     string                             // the path in the log, in dir unless it is absolute; "" for none
	}{
		"a pipe of Kubeconfig": {
			func(dir string) contexts.Provider {
				return contexts.Provider{Kubeconfig: filepath.Join(dir, "pipe") + separator + filepath.Join(dir, "good")}
			}, "pipe",
		},
		"a pipe of Files": {
			func(dir string) contexts.Provider {
				return contexts.Provider{Files: []string{filepath.Join(dir, "pipe"), filepath.Join(dir, "good")}}
			}, "pipe",
		},
		"a symbolic link to a pipe": {
			func(dir string) contexts.Provider {
				must(t, os.Symlink("pipe", filepath.Join(dir, "link")))
				return contexts.Provider{Files: []string{filepath.Join(dir, "link"), filepath.Join(dir, "good")}}
			}, "link",
		},
		"a device": {
			func(dir string) contexts.Provider {
				return contexts.Provider{Files: []string{"/dev/zero", filepath.Join(dir, "good")}}
			}, "/dev/zero",
		},
		"a pipe in a folder": {
			func(dir string) contexts.Provider { return contexts.Provider{Files: []string{dir}} }, "",
		},
		"a pipe that matches a pattern": {
			func(dir string) contexts.Provider { return contexts.Provider{Files: []string{filepath.Join(dir, "*")}} }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
			put(t, filepath.Join(dir, "good"), with("good"))
			if tc.says == "" {
				putText(t, filepath.Join(dir, "unusable"), []byte("{")) // the log tells of it last
			}
			p := tc.provider(dir)
			p.Interval = never
			r := start(t, p)
			r.waitFor("good@good")
			if tc.says == "" {
				r.waitForLog("there is a problem", filepath.Join(dir, "unusable"))
				if lines := r.logged(); len(lines) != 1 {
					t.Errorf("the log has %q, want one line", lines)
				}
				return
			}
			if !filepath.IsAbs(tc.says) {
				tc.says = filepath.Join(dir, tc.says)
			}
			r.waitForLog("there is a problem", tc.says, "regular file")
		})
	}
}

func TestAFileThatBecomesAPipeKeepsItsMembers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	put(t, path, with("a"))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	r := start(t, contexts.Provider{Kubeconfig: path, Interval: never})
	r.waitFor("a@a")
	must(t, os.Rename(filepath.Join(dir, "pipe"), path))
	r.waitFor("a !InvalidKubeconfig")
	put(t, path, with("a"))
	r.waitFor("a@a")
	r.wantNoneWithdrawn()
}

func TestPipesThatAKubeconfigNamesAreNotRead(t *testing.T) {
	for name, set := range map[string]func(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo){
		"ca":          func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "pipe" },
		"certificate": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = "pipe" },
		"key":         func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "pipe" },
		"token":       func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token, u.TokenFile = "", "pipe" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pipe := filepath.Join(dir, "pipe")
			must(t, syscall.Mkfifo(pipe, 0o600))
			config := with("a", "good")
			set(config.Clusters["a"], config.AuthInfos["a"])
			put(t, filepath.Join(dir, "config"), config)
			r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config"), Interval: never})
			r.waitFor("a !InvalidKubeconfig", "good@good")
			if message := r.member("a").Err.Error(); !strings.Contains(message, pipe) || !strings.Contains(message, "regular file") {
				t.Errorf("the error does not tell %s: %s", pipe, message)
			}
		})
	}
}

func TestAFolderThatIsAwayKeepsItsMembers(t *testing.T) {
	dir := t.TempDir()
	away := filepath.Join(dir, "away")
	for name, tc := range map[string]struct {
		path  string // the folder
		files string // the element of Files
		other string // what is put in its place, "" for nothing
	}{
		"moved":                        {path: "folder", files: "folder"},
		"a file in its place":          {path: "in-place", files: "in-place", other: "text"},
		"moved, of a pattern":          {path: "of-pattern", files: "of-pattern/*.yaml"},
		"a file, of a pattern":         {path: "pattern-in-place", files: "pattern-in-place/*/*.yaml", other: "text"},
		"moved, with a folder further": {path: "x/folder", files: "x/folder"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(dir, tc.path)
			put(t, filepath.Join(folder, "sub/a.yaml"), with("a"))
			put(t, filepath.Join(folder, "a.yaml"), with("a"))
			r := start(t, contexts.Provider{Files: []string{filepath.Join(dir, tc.files)}, Interval: never})
			r.waitFor("a@a")
			must(t, os.Rename(folder, away))
			if tc.other != "" {
				putText(t, folder, []byte(tc.other))
			}
			r.waitFor("a !InvalidKubeconfig")
			r.waitForLog(folder)
			if tc.other != "" {
				must(t, os.Remove(folder))
			}
			must(t, os.Rename(away, folder))
			r.waitFor("a@a")
			r.wantNoneWithdrawn()
		})
	}
}

// TestAProblemIsToldOnce: although the files are read again and again.
func TestAProblemIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a"), with("a"))
	put(t, filepath.Join(dir, "b"), with("a"))
	putText(t, filepath.Join(dir, "c"), []byte("{"))
	readings := make(chan struct{}, 100)
	r := start(t, contexts.Provider{Files: []string{dir}, Interval: time.Millisecond, Labels: func(contexts.Context) map[string]string {
		select {
		case readings <- struct{}{}:
		default:
		}
		return nil
	}})
	for range cap(readings) {
		<-readings
	}
	r.wantOneLine("there is a problem", filepath.Join(dir, "b"))
	r.wantOneLine("there is a problem", filepath.Join(dir, "c"))
	if got := r.called(); len(got) != 1 {
		t.Errorf("the calls are %q, want one", got)
	}
}

// TestANameThatGoesOverIsDrainedBetween: the first cluster of a name is withdrawn before the next is reported.
func TestANameThatGoesOverIsDrainedBetween(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "2"), at("m", "two"))
	r := start(t, contexts.Provider{Files: []string{dir}, Contexts: []string{"m"}, Interval: never})
	r.waitFor("m@two")
	put(t, filepath.Join(dir, "1"), at("m", "one"))
	r.waitFor("m@one")
	r.waitForLog(filepath.Join(dir, "2"), "m")
	putText(t, filepath.Join(dir, "1"), []byte("{"))
	r.waitFor("m !InvalidKubeconfig")
	must(t, os.Remove(filepath.Join(dir, "1")))
	r.waitFor("m@two")
	must(t, os.Remove(filepath.Join(dir, "2")))
	r.waitFor("m !NoContext")
	put(t, filepath.Join(dir, "3"), at("m", "two"))
	r.waitFor("m@two")
	want := []string{
		"set m@two", "remove m", "set m@one", "set m !InvalidKubeconfig", "remove m", "set m@two", "remove m", "set m !NoContext",
		"set m@two",
	}
	if got := r.called(); !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}

func TestPatternsThatCannotBeParsedAreRefused(t *testing.T) {
	for name, p := range map[string]contexts.Provider{
		"of@contexts": {Contexts: []string{"a", "[a"}},
		"of@files":    {Files: []string{"[a"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Run(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), `"[a"`) {
				t.Errorf("got error %v, want one that tells the pattern", err)
			}
		})
	}
}
