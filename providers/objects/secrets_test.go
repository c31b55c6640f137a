package objects_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// theirs is another label of the Secrets that the tests discover, beside ours.
const theirs = "theirs"

// reasonedError is an error that brings the reason of its event along.
type reasonedError struct{ text string }

func (e reasonedError) Error() string { return e.text }
func (reasonedError) Reason() string  { return "Reasoned" }

// describe takes each key of a Secret for a member, and the value for its host. Some values stand for trouble.
func describe(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
	var members []fleet.Member
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
		m := fleet.Member{Name: fleet.ClusterName(name), Labels: secret.Labels}
		switch value := string(secret.Data[name]); value {
		case "bad":
			m.Err = reasonedError{"the value is bad"}
		case "worse":
			m.Err = errors.New("the value is worse")
		case "unknown":
			return nil, errors.New("cannot tell what is here")
		case "panic":
			panic("the value was " + value)
		case "blank":
			m.Name = "a name with spaces"
			m.Config = &rest.Config{}
		case "hostless": // neither Config, Cluster nor Err
		case "twice":
			m.Config = &rest.Config{Host: "first"}
			members = append(members, m)
			m.Config = &rest.Config{Host: "second"}
		default:
			m.Config = &rest.Config{Host: value}
		}
		members = append(members, m)
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("%w: the Secret is empty", objects.ErrNone)
	}
	return members, nil
}

// provider returns a provider of the members in the labelled Secrets of one namespace.
func provider(namespace string) objects.Provider[*corev1.Secret] {
	return objects.Provider[*corev1.Secret]{
		Name: "test", Object: &corev1.Secret{}, Selectors: []labels.Selector{labelled(ours), labelled(theirs)},
		Namespaces: []string{namespace}, Members: describe,
	}
}

// start runs the provider until the test ends, and returns what it reports.
func start(t *testing.T, config *rest.Config, p fleet.Provider) *recording {
	t.Helper()
	r := newRecording()
	stop := startWith(t.Context(), t, startLocal(t, config), p, r)
	t.Cleanup(stop)
	return r
}

// startWith runs the provider. The returned function ends it, waits for that, and says what it did wrong.
func startWith(ctx context.Context, t *testing.T, local cluster.Cluster, p fleet.Provider, r *recording) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, local, r) }()
	return func() {
		t.Helper()
		select {
		case err := <-done:
			if ctx.Err() == nil {
				t.Errorf("Run returned early: %v", err)
			}
			done <- err
		default:
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return")
		}
		r.read(func() {
			for _, broken := range r.broken {
				t.Error(broken)
			}
		})
	}
}

// secret creates a Secret with the labels, which describes the members.
func (n namespace) secret(name string, members map[string]string, with ...string) *corev1.Secret {
	n.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.string, Name: name, Labels: map[string]string{}},
		StringData: members,
	}
	for _, label := range with {
		secret.Labels[label] = "true"
	}
	if err := n.cl.Create(n.t.Context(), secret); err != nil {
		n.t.Fatal(err)
	}
	return secret
}

// events returns the events about an object that the condition waits for, each as "Reason: note (times seen)".
func (n namespace) events(about client.Object, enough func(events []string) bool) []string {
	n.t.Helper()
	var events []string
	err := wait.PollUntilContextTimeout(n.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list := &eventsv1.EventList{}
		if err := n.cl.List(ctx, list, client.InNamespace(n.string)); err != nil {
			return false, err
		}
		events = nil
		for _, e := range list.Items {
			if e.Regarding.Name != about.GetName() || e.Regarding.UID != about.GetUID() {
				continue
			}
			if e.Type != corev1.EventTypeWarning || e.Regarding.Kind != "Secret" || e.ReportingController != "fleet-runtime.dev/test" {
				n.t.Errorf("an event is not as events of the provider are: %v", e)
			}
			events = append(events, e.Reason+": "+e.Note)
			if e.Series != nil {
				events = append(events, fmt.Sprintf("repeated %d times", e.Series.Count))
			}
		}
		slices.Sort(events)
		return enough(events), nil
	})
	if err != nil {
		n.t.Fatalf("waiting for events about %s: %v; there are %q", about.GetName(), err, events)
	}
	return events
}

// waitForEvents waits until there are as many events about the object, and compares them.
func (n namespace) waitForEvents(about client.Object, want ...string) {
	n.t.Helper()
	got := n.events(about, func(events []string) bool { return len(events) >= len(want) })
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("events about %s (-want +got):\n%s", about.GetName(), diff)
	}
}

type hosts = map[fleet.ClusterName]string
