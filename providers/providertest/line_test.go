package providertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// get returns what the server answers, when it begins to.
func get(t *testing.T, client *http.Client, url string) (io.Reader, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body, nil
}

func wantHello(t *testing.T, client *http.Client, url string) {
	t.Helper()
	body, err := get(t, client, url)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(body); string(text) != "hello" || err != nil {
		t.Fatalf("the server answered %q, %v", text, err)
	}
}

func clientOf(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestALineWorksUnlessItIsCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	var line Line
	client := clientOf(t, line.Through(&rest.Config{Host: server.URL}))
	wantHello(t, client, server.URL)
	watch, err := get(t, client, server.URL+"/watch")
	if err != nil {
		t.Fatal(err)
	}

	noticed, restore := line.Cut()
	if _, err := io.ReadAll(watch); err == nil {
		t.Error("a response under way was complete")
	}
	select {
	case <-noticed:
		t.Error("an attempt was noticed before there was one")
	default:
	}
	for range 2 {
		if _, err := get(t, client, server.URL); !errors.Is(err, errCut) {
			t.Errorf("a request returned %v", err)
		}
		<-noticed
	}
	restore()
	wantHello(t, client, server.URL)
}

func TestAConnectionThatIsBeingMadeWhenTheLineIsCutIsClosed(t *testing.T) {
	dialing, dialed := make(chan struct{}), make(chan struct{})
	near, far := net.Pipe()
	var line Line
	config := line.Through(&rest.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		close(dialing)
		<-dialed
		return near, nil
	}})
	result := make(chan error, 1)
	go func() {
		_, err := config.Dial(t.Context(), "tcp", "")
		result <- err
	}()
	<-dialing
	noticed, _ := line.Cut()
	close(dialed)
	if err := <-result; !errors.Is(err, errCut) {
		t.Errorf("Dial() = %v", err)
	}
	<-noticed
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads %v, want its end", err)
	}
}
