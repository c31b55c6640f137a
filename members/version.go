package members

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

const (
	versionsAtOnce = 8
	versionTimeout = 5 * time.Second
	maxVersion     = 200
	maxAnswer      = 1 << 16 // bytes
)

// versions are what API servers say they are. Each is asked once for each time that its member becomes Ready.
type versions struct {
	turns chan struct{} // of the requests that are under way

	mu sync.Mutex // guards of
	of map[string]versionOf
}

type versionOf struct {
	since time.Time // which time it was Ready
	is    string
}

// get returns the version, and whether the server was asked for it since the member became Ready.
func (v *versions) get(object string, since time.Time) (is string, asked bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.of[object]
	return known.is, known.since.Equal(since) && !since.IsZero()
}

// asking notes that the server is being asked.
func (v *versions) asking(object string, since time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[object] = versionOf{since, v.of[object].is}
}

// learned notes the answer, and returns whether it is news.
func (v *versions) learned(object string, since time.Time, is string) (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, asked := v.of[object]
	if !asked || !known.since.Equal(since) || known.is == is {
		return false
	}
	v.of[object] = versionOf{since, is}
	return true
}

func (v *versions) forget(object string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, object)
}

// version returns the version that a member's server was last known to have, and asks for it if that may be another now.
func (m *mirror) version(object string, known *v1alpha1.Member, status fleet.Status) string {
	is, asked := m.versions.get(object, status.Since)
	if !asked && status.State == fleet.Ready {
		m.askVersion(object, status)
	}
	if is == "" && known != nil {
		return known.Status.Version
	}
	return is
}

// askVersion asks a member's server in the background. That ends with the engagement, whose drain waits for it.
func (m *mirror) askVersion(object string, status fleet.Status) {
	e, err := m.fleet.Engagement(status.Name)
	if err != nil {
		return
	}
	ctx, leave, err := e.Join(e.Context(), askingVersion{})
	if err != nil {
		return
	}
	m.versions.asking(object, status.Since)
	go func() {
		defer leave()
		select {
		case m.versions.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-m.versions.turns }()
		is, err := readVersion(ctx, e)
		if err == nil && m.versions.learned(object, status.Since, is) {
			m.queue.Add(object)
		}
	}()
}

// askingVersion names what runs while a server is asked.
type askingVersion struct{}

func (askingVersion) String() string { return "the question for the server's version" }

func readVersion(ctx context.Context, e *fleet.Engagement) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(e.Cluster().GetConfig(), e.Cluster().GetHTTPClient())
	if err != nil {
		return "", err
	}
	body, err := asked.RESTClient().Get().AbsPath("/version").Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close() //nolint:errcheck // it was read
	var info version.Info
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&info); err != nil {
		return "", err
	}
	return oneline.Text(info.GitVersion, maxVersion), nil
}
