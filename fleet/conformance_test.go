package fleet_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestInventoryConforms(t *testing.T) {
	providertest.Run(t, providertest.Harness{New: newInventory})
}

// newInventory returns a service as what the provider discovers from.
func newInventory(t *testing.T) providertest.Source {
	t.Helper()
	s := &service{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // so no goroutine stays for the next request
	return providertest.Source{
		Provider: func() fleet.Provider { return inventory(client, server.URL, time.Millisecond) },
		Set:      func(_ *testing.T, d providertest.Description) { s.put(entryOf(d)) },
		Remove:   func(_ *testing.T, name string) { s.remove(name) },
		Rename:   func(_ *testing.T, from, to string) { s.rename(from, to) },
		Break: func(_ *testing.T, d providertest.Description) {
			e := entryOf(d)
			e.Server = ""
			s.put(e)
		},
		Duplicate: func(_ *testing.T, d providertest.Description) { s.add(entryOf(d)) },
		Interrupt: func(*testing.T) (noticed <-chan struct{}, restore func()) { return s.fail() },
	}
}

func entryOf(d providertest.Description) entry {
	return entry{Name: d.Name, Server: d.Config.Host, Token: d.Config.BearerToken, CA: d.Config.CAData, Labels: d.Labels}
}

// service is an inventory service.
type service struct {
	mu      sync.Mutex // guards what follows
	entries []entry
	failing func() // is called at each request; nil while the service works
}

func (s *service) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != nil {
		s.failing()
		http.Error(w, "[]", http.StatusServiceUnavailable)
		return
	}
	if err := json.NewEncoder(w).Encode(s.entries); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// fail has the service answer with errors until restore is called.
func (s *service) fail() (noticed <-chan struct{}, restore func()) {
	asked := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = sync.OnceFunc(func() { close(asked) })
	return asked, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failing = nil
	}
}

func (s *service) put(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(e.Name); i >= 0 {
		s.entries[i] = e
	} else {
		s.entries = append(s.entries, e)
	}
}

func (s *service) add(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
}

func (s *service) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(name)
	s.entries = slices.Delete(s.entries, i, i+1)
}

func (s *service) rename(from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[s.find(from)].Name = to
}

func (s *service) find(name string) int {
	return slices.IndexFunc(s.entries, func(e entry) bool { return e.Name == name })
}
