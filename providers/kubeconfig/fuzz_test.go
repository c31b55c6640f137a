package kubeconfig_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// mostFuzzed is the size of the largest texts that are tried, in bytes: more can be in no Secret.
const mostFuzzed = corev1.MaxSecretSize

// wantMember checks that a member has all that it must have, and does nothing that is refused by default.
func wantMember(t *testing.T, m fleet.Member) {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if m.Err == nil {
		wantHarmless(t, m)
		if _, err := m.Expires.MarshalJSON(); err != nil {
			t.Errorf("the state cannot be shown: %v", err)
		}
		return
	}
	if _, ok := errors.AsType[*kubeconfig.Error](m.Err); !ok {
		t.Fatalf("got %T", m.Err)
	}
	wantReadable(t, m.Err)
}

func FuzzMember(f *testing.F) {
	f.Add(write(f, newKubeconfig()), "")
	for _, tc := range refusals {
		config := newKubeconfig()
		tc.change(config.Clusters["east"], config.AuthInfos["admin"])
		f.Add(write(f, config), "main")
	}
	f.Add([]byte("apiVersion: v1\nkind: Config\nusers: [{name: a, user: null}, null]\ncontexts: [{name: a}]\ncurrent-context: a"), "a")
	for _, tc := range costly() {
		f.Add([]byte(tc.text[:min(len(tc.text), 2_000)]), "a")
	}
	f.Add([]byte(aliases(1, 1)), "a")
	f.Add([]byte(strings.ReplaceAll(aliases(1, 0), "token: x", "token: "+jwt(`{"exp": 2e9}`))), "a")
	megabyte := ordinary(f)
	f.Fuzz(func(t *testing.T, text []byte, context string) {
		if len(text)+len(context) > mostFuzzed {
			t.Skip("it fits into no Secret")
		}
		var m fleet.Member
		wantCheap(t, len(text), megabyte, func() { m = kubeconfig.Member("m", text, context, kubeconfig.Allow{}) })
		wantMember(t, m)
		if m.Err != nil {
			return
		}
		if again := kubeconfig.Member("m", bytes.Clone(text), context, kubeconfig.Allow{}); again.Revision != m.Revision {
			t.Error("the same kubeconfig has two revisions")
		}
	})
}

func FuzzArgoCD(f *testing.F) {
	// What messages say when nothing leaks into them.
	known := &strings.Builder{}
	seed := func(data map[string][]byte) {
		f.Add(data["server"], data["config"], string(data["project"]))
		for _, allow := range []kubeconfig.Allow{{}, {Exec: programs, InsecureTLS: true}} {
			if err := readArgoCD(f, data, allow).Err; err != nil {
				fmt.Fprintln(known, err)
			}
		}
	}
	seed(argoCDData(nil))
	for _, tc := range argoCDRefusals {
		seed(argoCDConfig([]byte(tc.config)))
	}
	bad := badArgoCD(f)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		seed(bad[name].data)
	}
	megabyte := ordinary(f)
	f.Fuzz(func(t *testing.T, server, config []byte, project string) {
		size := len(server) + len(config) + len(project)
		if size > mostFuzzed {
			t.Skip("it fits into no Secret")
		}
		s := &corev1.Secret{Data: argoCDData(map[string][]byte{"server": server, "config": config, "project": []byte(project)})}
		var members []fleet.Member
		var err error
		wantCheap(t, size, megabyte, func() { members, err = kubeconfig.ArgoCD().Members(s, kubeconfig.Reading{}) })
		if err != nil {
			t.Fatal(err)
		}
		if len(members) == 0 {
			return // the local cluster
		}
		wantMember(t, members[0])
		if members[0].Err != nil {
			wantNothingOf(t, members[0].Err, config, known.String())
			wantNothingOf(t, members[0].Err, server, known.String())
		}
	})
}

// wantNothingOf checks that err quotes nothing of a text but what messages say anyway.
func wantNothingOf(t *testing.T, err error, text []byte, known string) {
	t.Helper()
	const length = 12 // too long for coincidence
	for i := range max(0, len(text)-length+1) {
		part := string(text[i : i+length])
		if strings.Contains(err.Error(), part) && !strings.Contains(known, part) {
			t.Fatalf("the error quotes %q: %v", part, err)
		}
	}
}

func FuzzIstio(f *testing.F) {
	text := write(f, newKubeconfig())
	f.Add("east", text, "west", text)
	f.Add("", []byte{}, "\x1b[1m", []byte(aliases(1, 1)))
	f.Add(strings.Repeat("k", 253), []byte(randomBytes), "a b", []byte("{}"))
	megabyte := ordinary(f)
	f.Fuzz(func(t *testing.T, firstKey string, first []byte, secondKey string, second []byte) {
		size := len(firstKey) + len(first) + len(secondKey) + len(second)
		if size > mostFuzzed {
			t.Skip("it fits into no Secret")
		}
		s := &corev1.Secret{Data: map[string][]byte{firstKey: first, secondKey: second}}
		var members []fleet.Member
		var err error
		wantCheap(t, size, megabyte, func() { members, err = kubeconfig.Istio().Members(s, kubeconfig.Reading{}) })
		if err != nil || len(members) != len(s.Data) {
			t.Fatalf("got %d members of %d keys, and the error %v", len(members), len(s.Data), err)
		}
		for _, m := range members {
			if _, ok := s.Data[string(m.Name)]; !ok {
				t.Errorf("the name %q is no key", m.Name)
			}
			m.Name = "m" // of a key that can be no name, the engine says so
			wantMember(t, m)
		}
	})
}
