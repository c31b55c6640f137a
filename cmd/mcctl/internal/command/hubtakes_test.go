package command_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestASecretThatIsNoMintersIsNotJoinedOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	theirs := map[string][]byte{"token": []byte("of-the-mint"), "ca.crt": []byte("theirs")}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-minter"}, Data: theirs}
	if err := s.Local.Client().Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	r := s.join(t)
	if r.code != 1 || !strings.Contains(r.errOut, "Secret default/east-minter in the hub") || !strings.Contains(r.errOut, "Nothing was written") {
		t.Errorf("%+v", r)
	}
	now := &corev1.Secret{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(foreign), now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Secret of others was written: it has the labels %v, and %d keys", now.Labels, len(now.Data))
	}
	s.untouched(t)
}

func TestAJoinThatTheHubRefusesIsNotHalfMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a proxy that the kind does not allow": {[]string{"--advertise-proxy-url", "ftp://proxy.example.com"}, "proxyURL must be a URL"},
		"a namespace that is not there":        {[]string{"--namespace", "nosuch"}, `namespaces "nosuch" not found`},
		"a server with a query":                {[]string{"--advertise-server", "https://east.example.com:6443?x=1"}, "no user, query or fragment"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.join(t, c.args...)
			if r.code != 1 || !strings.Contains(r.errOut, "nothing was written") || !strings.Contains(r.errOut, c.says) {
				t.Errorf("%+v", r)
			}
			s.untouched(t)
			if made := s.inMember(t); len(made) > 0 {
				t.Errorf("the member has %v", made)
			}
		})
	}
}
