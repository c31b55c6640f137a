package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// liveMember is what a manager says at /debug/fleet of one member.
type liveMember struct {
	State   string                       `json:"state"`
	Queues  map[string]mcqueue.Stats     `json:"queues"`
	Running map[string][]mcqueue.Running `json:"running"`
}

const (
	// metricsPort is how the port of a manager's metrics server is called.
	metricsPort = "metrics"
	liveWithin  = 20 * time.Second
	// maxLive is how long an answer may be, in bytes, and mostLive how many reconciles of a controller are shown.
	maxLive, mostLive = 4 << 20, 10
	// maxLiveText is how long a name in an answer may be, in bytes.
	maxLiveText = 500
)

// live asks the manager that writes a Member what it knows of the member now. account is empty, or the ServiceAccount whose token the
// manager is shown: never the caller's own, which a Pod could use for all that the caller may do.
func (r *reached) live(ctx context.Context, k known, name string, account client.ObjectKey) (liveMember, error) {
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	pod, port, err := r.writer(ctx, k)
	if err != nil {
		return liveMember{}, err
	}
	token := ""
	if account.Name != "" {
		if token, err = r.tokenOf(ctx, account); err != nil {
			return liveMember{}, err
		}
	}
	ask := liveAsk{hub: r, pod: pod, port: port, token: token}
	status, text, err := ask.get(ctx, withTLS, name)
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
		ask.token = "" // which is for TLS alone
		status, text, err = ask.get(ctx, "http", name)
	}
	if err != nil {
		return liveMember{}, fmt.Errorf("ask the Pod %s/%s at its port %d: %w", pod.Namespace, pod.Name, port, err)
	}
	return readLive(pod.Namespace+"/"+pod.Name, status, text, token != "")
}

// readLive reads what a manager has answered.
func readLive(pod string, status int, text []byte, shown bool) (liveMember, error) {
	var page struct{ Members []liveMember }
	switch {
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && !shown:
		return liveMember{}, fmt.Errorf("the Pod %s does not tell everybody: name with --live-account a service account that may get /debug/fleet", pod)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return liveMember{}, fmt.Errorf("the Pod %s does not tell the service account of --live-account: it needs the right to get /debug/fleet", pod)
	case status == http.StatusNotFound:
		return liveMember{}, fmt.Errorf("the Pod %s does not have the member, or has no page /debug/fleet", pod)
	case status != http.StatusOK:
		return liveMember{}, fmt.Errorf("the Pod %s answers with the status %d", pod, status)
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return liveMember{}, fmt.Errorf("the Pod %s answers with what is no page of a member: %w", pod, err)
	}
	if len(page.Members) != 1 {
		return liveMember{}, fmt.Errorf("the Pod %s answers with %d members, not one", pod, len(page.Members))
	}
	return page.Members[0], nil
}

// writer returns the Pod that writes a Member, and the port of its metrics server.
func (r *reached) writer(ctx context.Context, k known) (*corev1.Pod, int32, error) {
	if k.member == nil || k.member.Status.Lease == nil {
		return nil, 0, errors.New("which manager works on it is not known: its Member does not name a Lease")
	}
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = k.member.Status.Lease.Namespace, k.member.Status.Lease.Name
	if err := r.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return nil, 0, fmt.Errorf("read the Lease %s/%s in the hub (%s): %w", lease.Namespace, lease.Name, r.config.Host, err)
	}
	pod := &corev1.Pod{}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" {
		return nil, 0, fmt.Errorf("no manager holds the Lease %s/%s", lease.Namespace, lease.Name)
	}
	pod.Namespace, pod.Name = lease.Namespace, cmp.Or(lease.Annotations[sharding.AnnotationPod], holder)
	err := r.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	if apierrors.IsNotFound(err) {
		return nil, 0, fmt.Errorf("the manager %s is no Pod in the namespace %s of the hub; ask it at /debug/fleet of its metrics server", pod.Name, pod.Namespace)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the Pod %s/%s in the hub (%s): %w", pod.Namespace, pod.Name, r.config.Host, err)
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == metricsPort {
				return pod, p.ContainerPort, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("the Pod %s/%s has no port that is called %s", pod.Namespace, pod.Name, metricsPort)
}

// tokenOf makes a token of an account of the hub, for as short a time as there is.
func (r *reached) tokenOf(ctx context.Context, account client.ObjectKey) (string, error) {
	of := &corev1.ServiceAccount{}
	of.Namespace, of.Name = account.Namespace, account.Name
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}}
	if err := r.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("make a token of the service account %s in the hub (%s): %w", account, r.config.Host, err)
	}
	return request.Status.Token, nil
}

// liveAsk is a question to a Pod.
type liveAsk struct {
	hub   *reached
	pod   *corev1.Pod
	port  int32
	token string
}

// get returns the status and the text of the answer.
func (a liveAsk) get(ctx context.Context, scheme, member string) (status int, text []byte, err error) {
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return a.hub.forward(ctx, a.pod, a.port) },
		// The API server, whose certificate was checked, has led to the Pod. The Pod's own certificate is made by itself.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as said
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	at := url.URL{Scheme: scheme, Host: "manager", Path: "/debug/fleet", RawQuery: url.Values{"member": {member}, "format": {asJSON}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := transport.RoundTrip(req) // redirects are not followed
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(answer.Body, maxLive))
	return answer.StatusCode, text, err
}

// findings says what a manager has in its queues for a member.
func (m liveMember) findings(now time.Time) []finding {
	queue := finding{about: columnQueue, says: "no controller has anything for it"}
	lines, running := make([]string, 0, len(m.Queues)), []string(nil)
	for _, controller := range slices.Sorted(maps.Keys(m.Queues)) {
		stats := m.Queues[controller]
		line := fmt.Sprintf("%s: %d wait, %d run", oneline.Text(controller, maxLiveText), stats.Depth, stats.InFlight)
		if stats.Paused {
			line += "; none begins, as the member cannot be used now"
		}
		lines = append(lines, line)
	}
	if len(lines) > 0 {
		queue.says = strings.Join(lines, "\n")
	}
	for _, controller := range slices.Sorted(maps.Keys(m.Running)) {
		all := m.Running[controller]
		for _, one := range all[:min(len(all), mostLive)] {
			line := fmt.Sprintf("%s: %s for %s", oneline.Text(controller, maxLiveText), oneline.Text(one.Request, maxLiveText), now.Sub(one.Since).Truncate(time.Second))
			if one.Silent {
				line += ", and a cluster has not answered it so far"
			}
			running = append(running, line)
		}
		if more := len(all) - mostLive; more > 0 {
			running = append(running, fmt.Sprintf("%s: and %d more", oneline.Text(controller, maxLiveText), more))
		}
	}
	if len(running) == 0 {
		running = []string{"nothing"}
	}
	return []finding{queue, {about: "Running", says: strings.Join(running, "\n")}}
}
