package providertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// newCA returns the certificate of a new authority.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "providertest"},
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// doorbell is an address without a cluster. It counts the connections that are made to it.
type doorbell struct {
	address string
	rung    atomic.Int64
}

// newDoorbell listens until the test ends.
func newDoorbell(t *testing.T) *doorbell {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &doorbell{address: listener.Addr().String()}
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.rung.Add(1)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		listening.Wait()
	})
	return d
}

// visitors returns how many have come until now.
func (d *doorbell) visitors(t *testing.T) int64 {
	t.Helper()
	// Connections are accepted in their order, so when this one is closed, all before it are counted.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.Close()
	return d.rung.Add(-1)
}

// cluster returns the description of a cluster that the test has not described before. It has no labels.
func (c *trial) cluster(name string) Description {
	c.t.Helper()
	d := Description{Name: name}
	if c.NoConfig == "" {
		bell := newDoorbell(c.t)
		c.bells = append(c.bells, bell)
		d.Config = &rest.Config{
			Host: "https://" + bell.address, BearerToken: c.newToken(), TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		}
	}
	return d
}

// withNewToken returns the description of the same cluster with other credentials, if it has any.
func (c *trial) withNewToken(d Description) Description {
	if d.Config != nil {
		d.Config = rest.CopyConfig(d.Config)
		d.Config.BearerToken = c.newToken()
	}
	return d
}

func (c *trial) newToken() string {
	token := "token-" + rand.Text()
	c.tokens = append(c.tokens, token)
	return token
}
