package kind

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

const (
	manifests = root + "/examples/operator/deploy/"
	namespace = "fleet" // of the operator, and of its accounts in the members

	wanted   = "checksum.example.com/wanted"
	checksum = "checksum.example.com/sha256"
	author   = "checksum.example.com/written-by"
)

// operator is examples/operator, in the hub.
type operator struct {
	*clusters

	hub     client.WithWatch
	members map[string]client.WithWatch
}

// deploy does what docs/install.md says.
func deploy(t *testing.T, c *clusters) *operator {
	t.Helper()
	o := &operator{clusters: c, hub: c.client(t, hub), members: map[string]client.WithWatch{}}
	c.kubectl(t, hub, "apply", "-f", manifests+"hub.yaml", "-f", manifests+"reader.yaml")
	for _, name := range []string{east, west} {
		o.join(t, name)
	}
	c.kubectl(t, hub, "--namespace", namespace, "rollout", "status", "deployment/operator", "--timeout", patience.String())
	c.logsIfItFails(t, namespace, "operator")
	return o
}

// join gives the member the account of the operator, and the hub its kubeconfig.
func (o *operator) join(t *testing.T, name string) {
	t.Helper()
	o.kubectl(t, name, "apply", "-f", manifests+"member.yaml")
	o.clusters.join(t, name)
	o.members[name] = o.client(t, name)
}

// pods returns the names of the operator's pods that run, and are not about to end.
func (o *operator) pods(t *testing.T) []string {
	t.Helper()
	list := &corev1.PodList{}
	must(t, o.hub.List(t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{"app": "operator"}))
	var names []string
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodRunning {
			names = append(names, pod.Name)
		}
	}
	return names
}

// configMap returns one that wants a checksum.
func configMap(name, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{wanted: "true"}},
		Data:       map[string]string{"content": content},
	}
}

// change changes what is in a ConfigMap of a member, and creates that if it must.
func (o *operator) change(ctx context.Context, member, name, content string) error {
	patch := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q,"labels":{%q:"true"}},
		"data":{"content":%q}}`, name, wanted, content)
	return o.members[member].Patch(ctx, configMap(name, ""), client.RawPatch("application/apply-patch+yaml", []byte(patch)),
		client.FieldOwner("test"), client.ForceOwnership)
}

// summed waits until the checksum of a ConfigMap is that of the content, and returns which replica wrote it.
func (o *operator) summed(t *testing.T, member, name, content string) (replica string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s in %s has the checksum of %q", name, member, content), func() error {
		found := configMap(name, "")
		if err := o.members[member].Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil {
			return err
		}
		if found.Annotations[checksum] != sumOf(content) {
			return fmt.Errorf("it has %q", found.Annotations)
		}
		replica, _, _ = strings.Cut(found.Annotations[author], " ")
		return nil
	})
	return replica
}

// works changes a ConfigMap in each member, waits for the checksums, and returns who wrote them.
func (o *operator) works(t *testing.T, content string) map[string]string {
	t.Helper()
	replicas := map[string]string{}
	for name := range o.members {
		eventually(t, "a ConfigMap of "+name+" is changed", func() error { return o.change(t.Context(), name, "probe", content) })
	}
	for name := range o.members {
		replicas[name] = o.summed(t, name, "probe", content)
	}
	return replicas
}

// token returns one of an account in the hub.
func (o *operator) token(t *testing.T, account string) string {
	t.Helper()
	return strings.TrimSpace(o.kubectl(t, hub, "--namespace", namespace, "create", "token", account))
}

var forwarded = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// ask gets a page of a pod's metrics server, with a token unless that is empty.
func (o *operator) ask(t *testing.T, pod, path, token string) (status int, body []byte, err error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cmd := exec.CommandContext(ctx, "kubectl", "--context", contextOf(hub), "--namespace", namespace, "port-forward", "pod/"+pod, ":8443")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+o.kubeconfig)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	defer func() { end(); _ = cmd.Wait() }() // it was ended
	line, err := bufio.NewReader(stdout).ReadString('\n')
	port := forwarded.FindStringSubmatch(line)
	if port == nil {
		return 0, nil, fmt.Errorf("kubectl port-forward has said %q: %w", line, errors.Join(err, errors.New("no port")))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port[1]+path, nil)
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // it signs its own certificate
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// shown returns what a replica's page shows of a member.
func (o *operator) shown(t *testing.T, pod, token, member string) (fleet.Status, error) {
	t.Helper()
	status, body, err := o.ask(t, pod, "/debug/fleet?format=json", token)
	if err != nil || status != http.StatusOK {
		return fleet.Status{}, fmt.Errorf("/debug/fleet of %s: status %d: %s, %w", pod, status, body, err)
	}
	var page struct{ Members []fleet.Status }
	if err := json.Unmarshal(body, &page); err != nil {
		return fleet.Status{}, err
	}
	at := slices.IndexFunc(page.Members, func(s fleet.Status) bool { return string(s.Name) == member })
	if at < 0 {
		return fleet.Status{}, fmt.Errorf("/debug/fleet of %s does not show %s: %s", pod, member, body)
	}
	return page.Members[at], nil
}

// becomes waits until the replica that owns a member shows it in a state.
func (o *operator) becomes(t *testing.T, member, token string, want fleet.State) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", member, want), func() error {
		var others []error
		for _, pod := range o.pods(t) {
			s, err := o.shown(t, pod, token, member)
			if err == nil && s.State == want {
				return nil
			}
			others = append(others, fmt.Errorf("%s shows %s (%s): %w", pod, s.State, s.Reason, err))
		}
		return errors.Join(others...)
	})
}
