package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/examples/ingress-tls/pki"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

var (
	now   = time.Now()
	hosts = []string{"nginx.example.com", "api.example.com"}
)

func TestAServerAndAClientTrustEachOther(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	server, client, foreign := issueServer(t, ours, now), issueClient(t, ours, now), issueClient(t, theirs, now)
	for name, tc := range map[string]struct {
		client  *pki.Pair
		trusted pki.Authority
		host    string
		works   bool
	}{
		"the first host":               {&client, ours, hosts[0], true},
		"the second host":              {&client, ours, hosts[1], true},
		"another host":                 {&client, ours, "evil.example.com", false},
		"no certificate":               {nil, ours, hosts[0], false},
		"one of another authority":     {&foreign, ours, hosts[0], false},
		"the server's as the client's": {&server, ours, hosts[0], false},
		"a client of another server":   {&client, theirs, hosts[0], false},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshake(t, server, ours.Trusted(), tc.client, tc.trusted.Trusted(), tc.host)
			if (err == nil) != tc.works {
				t.Errorf("the handshake ends with %v", err)
			}
		})
	}
}

func TestAnAuthorityIsKept(t *testing.T) {
	a := authority(t)
	again := reread(t, a)
	if err := handshake(t, issueServer(t, again, now), a.Trusted(), new(issueClient(t, a, now)), again.Trusted(), hosts[0]); err != nil {
		t.Error(err)
	}
	if same, err := again.Renewed(now, year); err != nil || string(same.Trusted()) != string(a.Trusted()) {
		t.Errorf("a young authority is made anew (%v)", err)
	}
}

// TestAnAuthorityIsSucceeded says that what was issued works with all that is trusted, at any time of a succession.
func TestAnAuthorityIsSucceeded(t *testing.T) {
	a := authority(t)
	var server, client pki.Pair
	trusted := map[time.Duration][]byte{}
	for age := time.Duration(0); age < 3*year; age += 10 * day {
		at := now.Add(age)
		renewed, err := a.Renewed(at, year)
		if err != nil {
			t.Fatal(err)
		}
		a = reread(t, renewed)
		if !at.Before(a.ServerRenewal(server, hosts)) {
			server = issueServer(t, a, at)
		}
		if !at.Before(a.ClientRenewal(client, "client")) {
			client = issueClient(t, a, at)
		}
		trusted[age] = a.Trusted()
		for _, late := range []time.Duration{0, 10 * day} { // a member may not have heard of the newest yet
			roots, ok := trusted[age-late]
			if !ok {
				continue
			}
			verifies(t, server, roots, at, x509.ExtKeyUsageServerAuth)
			verifies(t, client, roots, at, x509.ExtKeyUsageClientAuth)
		}
		if n := strings.Count(string(a.Trusted()), "BEGIN"); n > 2 {
			t.Fatalf("%d authorities after %s", n, age)
		}
	}
}

func TestWhatDoesNotFitIsIssuedAnew(t *testing.T) {
	a, other := authority(t), authority(t)
	server, client := issueServer(t, a, now), issueClient(t, a, now)
	if at := a.ServerRenewal(server, []string{hosts[1], hosts[0]}); at.Before(now.Add(15*day)) || at.After(now.Add(25*day)) {
		t.Errorf("a certificate of 30 days is renewed at %s", at)
	}
	for name, at := range map[string]time.Time{
		"nothing":                   a.ServerRenewal(pki.Pair{}, hosts),
		"another host":              a.ServerRenewal(server, []string{hosts[0], "new.example.com"}),
		"one host less":             a.ServerRenewal(server, hosts[:1]),
		"another authority":         other.ServerRenewal(server, hosts),
		"another key":               a.ServerRenewal(pki.Pair{Certificate: server.Certificate, Key: client.Key}, hosts),
		"a client as a server":      a.ServerRenewal(client, nil),
		"a server as a client":      a.ClientRenewal(server, ""),
		"another name":              a.ClientRenewal(client, "somebody"),
		"no PEM":                    a.ServerRenewal(pki.Pair{Certificate: []byte("x"), Key: []byte("y")}, hosts),
		"a certificate that is cut": a.ServerRenewal(pki.Pair{Certificate: server.Certificate[:len(server.Certificate)/2], Key: server.Key}, hosts),
	} {
		if !at.IsZero() {
			t.Errorf("%s: it is kept until %s", name, at)
		}
	}
}

func TestAnAuthorityThatCannotBeReadSaysWhy(t *testing.T) {
	p, err := authority(t).PEM()
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority(t).PEM()
	if err != nil {
		t.Fatal(err)
	}
	leaf := issueServer(t, authority(t), now)
	for name, tc := range map[string]struct {
		pair pki.Pair
		want string
	}{
		"no key":               {pki.Pair{Certificate: p.Certificate}, "1 certificates and 0 keys"},
		"another key":          {pki.Pair{Certificate: p.Certificate, Key: other.Key}, "with that key"},
		"no authority":         {leaf, "not one of an authority"},
		"no PEM":               {pki.Pair{Certificate: []byte("x")}, "not PEM"},
		"a key that is no key": {pki.Pair{Certificate: p.Certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})}, "none of PKCS"},
	} {
		if _, err := pki.ReadAuthority(tc.pair); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, tc.want)
		}
	}
}

func TestSerialNumbersDiffer(t *testing.T) {
	a := authority(t)
	seen := map[string]bool{parse(t, a.Trusted()).SerialNumber.String(): true}
	for range 20 {
		serial := parse(t, issueServer(t, a, now).Certificate).SerialNumber
		if seen[serial.String()] || serial.BitLen() < 64 {
			t.Fatalf("the serial number %s", serial)
		}
		seen[serial.String()] = true
	}
}

func authority(t *testing.T) pki.Authority {
	t.Helper()
	a, err := pki.Authority{}.Renewed(now, year)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func reread(t *testing.T, a pki.Authority) pki.Authority {
	t.Helper()
	p, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.ReadAuthority(p)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func issueServer(t *testing.T, a pki.Authority, at time.Time) pki.Pair {
	t.Helper()
	p, err := a.Server(hosts, at, 30*day)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func issueClient(t *testing.T, a pki.Authority, at time.Time) pki.Pair {
	t.Helper()
	p, err := a.Client("client", at, 30*day)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verifies(t *testing.T, p pki.Pair, trusted []byte, at time.Time, usage x509.ExtKeyUsage) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	if _, err := parse(t, p.Certificate).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Fatalf("after %s: %v", at.Sub(now), err)
	}
}

// handshake lets a client and a server speak, and returns what the client hears of it.
func handshake(t *testing.T, server pki.Pair, clients []byte, client *pki.Pair, servers []byte, host string) error {
	t.Helper()
	pool := func(text []byte) *x509.CertPool {
		p := x509.NewCertPool()
		p.AppendCertsFromPEM(text)
		return p
	}
	load := func(p pki.Pair) []tls.Certificate {
		c, err := tls.X509KeyPair(p.Certificate, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	config := &tls.Config{RootCAs: pool(servers), ServerName: host, MinVersion: tls.VersionTLS13}
	if client != nil {
		config.Certificates = load(*client)
	}
	return stage.Handshake(t, &tls.Config{
		Certificates: load(server), ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(clients), MinVersion: tls.VersionTLS13,
	}, config)
}
