package fleet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMembersThatCannotBeUsedAreRefused(t *testing.T) {
	cfg := &rest.Config{}
	cases := map[string]struct {
		member Member
		want   string // empty: valid
	}{
		"Valid":         {member: Member{Name: "a", Config: cfg}},
		"WithNamespace": {member: Member{Name: "team-a/prod", Config: cfg}},
		"LongestName":   {member: Member{Name: ClusterName(strings.Repeat("x", MaxNameLength)), Config: cfg}},
		"Broken":        {member: Member{Name: "a", Err: errors.New("does not parse")}},
		"Empty":         {member: Member{Config: cfg}, want: "the local cluster's"},
		"TooLong":       {member: Member{Name: ClusterName(strings.Repeat("x", MaxNameLength+1)), Config: cfg}, want: "318 bytes, 317 are allowed"},
		"Space":         {member: Member{Name: "a b", Config: cfg}, want: "spaces"},
		"Newline":       {member: Member{Name: "a\nb", Config: cfg}, want: "do not print"},
		"NotUTF8":       {member: Member{Name: "a\xff", Config: cfg}, want: "UTF-8"},
		"Nothing":       {member: Member{Name: "a"}, want: "exactly one"},
		"TwoWays":       {member: Member{Name: "a", Config: cfg, Err: errors.New("x")}, want: "exactly one"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := running(t, Options{}).set(tc.member)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Set() = %v, want no error", err)
			case tc.want != "" && (!errors.Is(err, ErrInvalidMember) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Set() = %v, want ErrInvalidMember with %q", err, tc.want)
			}
		})
	}
}

func TestSameAccess(t *testing.T) {
	proxied := make([]*rest.Config, 0, 3)
	for _, address := range []string{"http://p", "http://p", "http://q"} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		proxied = append(proxied, &rest.Config{Host: "https://a", Proxy: http.ProxyURL(u)})
	}
	cases := map[string]struct {
		reason string
		a, b   Member
		want   bool
	}{
		"SameValues":      {"Configs made anew of the same content are the same.", Member{Config: &rest.Config{Host: "a"}}, Member{Config: &rest.Config{Host: "a"}}, true},
		"OtherHost":       {"A field differs.", Member{Config: &rest.Config{Host: "a"}}, Member{Config: &rest.Config{Host: "b"}}, false},
		"OtherToken":      {"A credential differs.", Member{Config: &rest.Config{BearerToken: "a"}}, Member{Config: &rest.Config{BearerToken: "b"}}, false},
		"OtherCA":         {"A nested field differs.", Member{Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("a")}}}, Member{Config: &rest.Config{}}, false},
		"SameProxy":       {"reflect.DeepEqual would call the functions unequal.", Member{Config: proxied[0]}, Member{Config: proxied[1]}, true},
		"OtherProxy":      {"Functions of the same code, which name different proxies.", Member{Config: proxied[0]}, Member{Config: proxied[2]}, false},
		"OtherIdentity":   {"The provider says that it is another cluster.", Member{Config: proxied[0], Identity: "a"}, Member{Config: proxied[0], Identity: "b"}, false},
		"SameRevision":    {"The provider knows best.", Member{Config: proxied[0], Revision: "1"}, Member{Config: &rest.Config{}, Revision: "1"}, true},
		"OneRevision":     {"The config tells where one has none.", Member{Config: proxied[0], Revision: "1"}, Member{Config: proxied[1]}, true},
		"OtherRevision":   {"A proxy's address is hidden in a closure; the revision tells.", Member{Config: proxied[0], Revision: "1"}, Member{Config: proxied[2], Revision: "2"}, false},
		"ConfigOrNothing": {"A description that broke is another one.", Member{Config: &rest.Config{}}, Member{Err: errors.New("x")}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := sameAccess(tc.a, tc.b); got != tc.want {
				t.Errorf("sameAccess() = %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestWhatMayBeTakenOverInPlace(t *testing.T) {
	with := func(change func(*rest.Config)) *rest.Config {
		cfg := &rest.Config{Host: "https://a", BearerToken: "old", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}
		change(cfg)
		return cfg
	}
	proxy := func(address string) func(*rest.Config) {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return func(c *rest.Config) { c.Proxy = http.ProxyURL(u) }
	}
	dial := func(c *rest.Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }
	}
	same := func(*rest.Config) {}
	cases := map[string]struct {
		from, to       func(*rest.Config)
		route, address bool
	}{
		"the same":           {same, same, true, true},
		"token":              {same, func(c *rest.Config) { c.BearerToken = "new" }, true, true},
		"client certificate": {same, func(c *rest.Config) { c.CertData, c.KeyFile = []byte("c"), "key" }, true, true},
		"program":            {same, func(c *rest.Config) { c.ExecProvider = &clientcmdapi.ExecConfig{Command: "x"} }, true, true},
		"CA":                 {same, func(c *rest.Config) { c.CAData = []byte("other") }, false, true},
		"CA file":            {same, func(c *rest.Config) { c.CAFile = "other" }, false, true},
		"server name":        {same, func(c *rest.Config) { c.ServerName = "other" }, false, true},
		"no TLS checks":      {same, func(c *rest.Config) { c.Insecure = true }, false, true},
		"proxy":              {same, proxy("http://p"), false, true},
		"another proxy":      {proxy("http://p"), proxy("http://q"), false, true},
		"the same proxy":     {proxy("http://p"), proxy("http://p"), true, true},
		"a function to dial": {dial, dial, false, true},
		"host":               {same, func(c *rest.Config) { c.Host = "https://b" }, false, false},
		"path":               {same, func(c *rest.Config) { c.APIPath = "/b" }, false, false},
		"impersonation":      {same, func(c *rest.Config) { c.Impersonate.UserName = "u" }, false, false},
		"time-out":           {same, func(c *rest.Config) { c.Timeout = 1 }, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from, to := with(tc.from), with(tc.to)
			if got := sameRoute(from, to); got != tc.route {
				t.Errorf("sameRoute() = %v, want %v", got, tc.route)
			}
			if got := sameAddress(from, to); got != tc.address {
				t.Errorf("sameAddress() = %v, want %v", got, tc.address)
			}
		})
	}
}
