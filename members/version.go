package members

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

const (
	versionsAtOnce = 8
	versionTimeout = 5 * time.Second
	maxVersion     = 200
	maxAnswer      = 1 << 16 // bytes
	// versionLatest is the longest pause until a server is asked again that gave no answer.
	versionLatest = 5 * time.Minute
)

// versions are what API servers say they are. Each is asked until it answers, each time that its member becomes Ready.
type versions struct {
	turns chan struct{} // of the requests that are under way

	mu sync.Mutex // guards of
	of map[string]versionOf
}

type versionOf struct {
	is     string
	since  time.Time    // which time it was Ready when it was asked
	next   time.Time    // when to ask again, zero while it is asked and once it has answered
	pauses wait.Backoff // between attempts
}

// get returns the version, and whether the server is to be asked for it now, or else after how long, zero for never.
func (v *versions) get(object string, since time.Time) (is string, due bool, after time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.of[object]
	switch {
	case since.IsZero() || !known.since.Equal(since):
		return known.is, true, 0
	case known.next.IsZero():
		return known.is, false, 0
	}
	after = max(time.Until(known.next), 0)
	return known.is, after == 0, after
}

// asking notes that the server is being asked.
func (v *versions) asking(object string, since time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.of[object]
	if !known.since.Equal(since) {
		known.since, known.pauses = since, retry.Pauses(versionLatest)
	}
	known.next = time.Time{}
	v.of[object] = known
}

// answered notes what became of asking, and returns whether the Member is to be looked at for it.
func (v *versions) answered(object string, since time.Time, is string, err error) (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, asked := v.of[object]
	if !asked || !known.since.Equal(since) || err == nil && known.is == is {
		return false
	}
	if err == nil {
		known.is = is
	} else {
		known.next = time.Now().Add(known.pauses.Step())
	}
	v.of[object] = known
	return true
}

func (v *versions) forget(object string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, object)
}

// version returns the version that a member's server was last known to have, and asks for it if that may be another now. The duration is
// after how long that is to be called again, zero for never.
func (m *mirror) version(object string, known *v1alpha1.Member, status fleet.Status) (is string, after time.Duration) {
	is, due, after := m.versions.get(object, status.Since)
	if due && status.State == fleet.Ready {
		m.askVersion(object, status)
	}
	if is == "" && known != nil {
		is = known.Status.Version
	}
	return is, after
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
		is, err := m.versions.ask(ctx, e)
		if m.versions.answered(object, status.Since, is, err) {
			m.queue.Add(object)
		}
	}()
}

// ask asks a server when it is its turn.
func (v *versions) ask(ctx context.Context, e *fleet.Engagement) (string, error) {
	select {
	case v.turns <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-v.turns }()
	return readVersion(ctx, e)
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
