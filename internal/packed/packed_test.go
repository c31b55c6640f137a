package packed

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
)

// aDescription is a kubeconfig with so many bytes in each of its certificates and keys.
func aDescription(n int) []byte {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: noise(n)})
	return []byte("apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(certificate) +
		"\n    server: https://x\nusers:\n- user:\n    client-key-data: " + base64.StdEncoding.EncodeToString(certificate) + "\n")
}

// noise returns bytes that nothing can pack.
func noise(n int) []byte {
	all, x := make([]byte, n), uint32(1)
	for i := range all {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		all[i] = byte(x)
	}
	return all
}

// FuzzWhatIsPackedComesBack, whatever it is.
func FuzzWhatIsPackedComesBack(f *testing.F) {
	long := strings.Repeat("A", line)
	for _, text := range []string{
		"", "x", long, long + "\n", long + "\n" + long, long + "\n" + long + "\n", long + "\nAA==", long + "\nAAB=", long + "\nAA==\n", long + "AA==",
		long + "=", long + "===", long + "\r\n" + long, "x" + long + "\n" + long + "AAAA", long + "\n\n" + long, strings.Repeat("A", shortest+1),
		strings.Repeat("A", shortest-1) + "B", dictionary, string(aDescription(100)), "\x00" + long + "\x00",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Unpack(Pack(text))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	})
}

// FuzzWhatWasNotPackedIsAnError, or some text: it ends the process in no case.
func FuzzWhatWasNotPackedIsAnError(f *testing.F) {
	f.Add(Pack([]byte("x")))
	f.Add(takeApart(nil, aDescription(50), 0))
	f.Fuzz(func(t *testing.T, packed []byte) {
		_, _ = Unpack(packed)
		if _, err := putTogether(nil, packed); err == nil && len(packed) == 0 {
			t.Error("nothing is a text")
		}
	})
}

// TestOfADescriptionWhatCannotBeToldRemains: what certificates hold, once, and hardly more.
func TestOfADescriptionWhatCannotBeToldRemains(t *testing.T) {
	for _, n := range []int{400, 1200} {
		text := aDescription(n)
		if got, most := len(Pack(text)), n+n/10+100; got > most {
			t.Errorf("two times %d bytes in %d are packed in %d, want at most %d", n, len(text), got, most)
		}
	}
}

func BenchmarkPack(b *testing.B) {
	text := aDescription(400)
	for b.Loop() {
		Pack(text)
	}
}

func BenchmarkUnpack(b *testing.B) {
	packed := Pack(aDescription(400))
	for b.Loop() {
		if _, err := Unpack(packed); err != nil {
			b.Fatal(err)
		}
	}
}
