package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "example.com/guestbook/api/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestTheMovedOperatorServesEveryMember with the rights of config/hub and config/member, and no others.
func TestTheMovedOperatorServesEveryMember(t *testing.T) {
	clusters, memberLeaves := start(t)
	for _, m := range clusters {
		m.create(t, m.guestbook())
	}
	for _, m := range clusters {
		stage.Eventually(t, "the guestbook of "+m.Name+" is told that it has no Secret", func() bool { return m.reason(t) == "SecretMissing" })
	}
	one, other := clusters[0], clusters[1]

	one.create(t, &corev1.Secret{ObjectMeta: guests()}) // the watch of Secrets, its map function, and the index
	stage.Eventually(t, "the guestbook of one member is served", func() bool { return one.reason(t) == "Served" })
	if other.get(t, &appsv1.Deployment{}, "guests") {
		t.Errorf("the Secret of %s was taken for that of %s", one.Name, other.Name)
	}
	other.create(t, &corev1.Secret{ObjectMeta: guests()})
	for _, m := range clusters {
		stage.Eventually(t, "an event is in "+m.Name, func() bool { return m.hasEvent(t, "Deployed") })
	}
	for _, m := range clusters {
		m.secretChanges(t)
		m.ownedIsPutRight(t)
		m.finalizerRuns(t)
	}
	memberLeaves() // its Secret is asked for, which is gone from the watch
}

// start runs the operator against a hub and two members, the last of which can leave.
func start(t *testing.T) (members []member, lastLeaves func()) {
	t.Helper()
	clusters := pool.Start(t, mctest.Options{Clusters: 2, CRDPaths: []string{"../config/crd/bases"}, Scheme: scheme})
	hub := stage.NewAccount(t, clusters.Local, rightsOf(t, "../config/hub"))
	program := stage.Start(t, "--kubeconfig", hub.File(t), "--health-probe-bind-address", "0")
	manifest := rightsOf(t, "../config/member")
	for _, cp := range clusters.Members {
		account := stage.NewAccount(t, cp, manifest)
		secret := stage.Join(t, clusters.Local, cp.Name, account.Kubeconfig(t), nil)
		program.Writes("Engaged", cp.Name)
		members = append(members, member{cp})
		lastLeaves = func() {
			if err := clusters.Local.Client().Delete(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			program.Writes("Disengaged", cp.Name)
		}
	}
	program.Writes("The controller runs", "guestbook", "every member")
	return members, lastLeaves
}

// rightsOf returns the rights that the manifests of a folder give.
func rightsOf(t *testing.T, folder string) mctest.Rights {
	t.Helper()
	return mctest.Rights{File: kustomized(t, folder), Needed: map[string]string{"* *.*": "the roles are kubebuilder's, for what may be scaffolded later"}}
}

// kustomized returns the path of a file with the manifests of a folder.
func kustomized(t *testing.T, folder string) string {
	t.Helper()
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	manifests, err := exec.CommandContext(t.Context(), kubectl, "kustomize", folder).Output()
	if err != nil {
		t.Fatalf("running kubectl kustomize %s: %v", folder, err)
	}
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, manifests, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func guests() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: "guests"} }

// member is a cluster with one guestbook, "guests".
type member struct{ *mctest.ControlPlane }

func (member) guestbook() *webappv1.Guestbook {
	return &webappv1.Guestbook{ObjectMeta: guests(), Spec: webappv1.GuestbookSpec{Title: "Guests", SecretName: "guests"}}
}

func (m member) create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := m.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// get reports whether there is an object of the name, and reads it.
func (m member) get(t *testing.T, obj client.Object, name string) bool {
	t.Helper()
	err := m.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}

// reason returns why the guestbook is ready or not.
func (m member) reason(t *testing.T) string {
	t.Helper()
	guestbook := m.guestbook()
	m.get(t, guestbook, "guests")
	if c := meta.FindStatusCondition(guestbook.Status.Conditions, "Ready"); c != nil {
		return c.Reason
	}
	return ""
}

func (m member) hasEvent(t *testing.T, reason string) bool {
	t.Helper()
	events := &eventsv1.EventList{}
	if err := m.Client().List(t.Context(), events, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.Name == "guests" })
}

// secretChanges checks that a changed Secret leads to new pods.
func (m member) secretChanges(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: guests(), StringData: map[string]string{"PASSWORD": "another"}}
	if err := m.Client().Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "the Deployment knows the Secret's new version", func() bool {
		deployment := &appsv1.Deployment{}
		return m.get(t, deployment, "guests") &&
			deployment.Spec.Template.Annotations["webapp.example.com/secret-version"] == secret.ResourceVersion
	})
}

// ownedIsPutRight checks that a ConfigMap that somebody changes gets what it had.
func (m member) ownedIsPutRight(t *testing.T) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: guests(), Data: map[string]string{"TITLE": "Vandals"}}
	if err := m.Client().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "the ConfigMap has its title again", func() bool {
		return m.get(t, config, "guests") && config.Data["TITLE"] == "Guests"
	})
}

// finalizerRuns checks that a guestbook is archived before it goes.
func (m member) finalizerRuns(t *testing.T) {
	t.Helper()
	if err := m.Client().Delete(t.Context(), m.guestbook()); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "the guestbook is gone", func() bool { return !m.get(t, m.guestbook(), "guests") })
	if !m.get(t, &corev1.ConfigMap{}, "guests-archive") {
		t.Errorf("the guestbook of %s was not archived", m.Name)
	}
}
