package command_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
	"github.com/fleet-runtime/fleet-runtime/mcwebhook"
)

// webhookRules has the rights of what keeps webhooks in a member.
const webhookRules = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: checksums}
rules:
- {apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations], verbs: [get, list, watch, create, patch, update, delete]}
`

// startWebhooks runs a program that keeps webhooks in its members, and refuses all writes while it is away.
func (s *stage) startWebhooks(t *testing.T, name string) {
	t.Helper()
	configurations, err := mcwebhook.Parse([]byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: any}
webhooks:
- admissionReviewVersions: [v1]
  clientConfig: {service: {name: any, namespace: any, path: /any}}
  failurePolicy: Fail
  name: any.example.com
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [anything]}]
  sideEffects: None
`))
	if err != nil {
		t.Fatal(err)
	}
	mgr := s.newManager(t, noMetrics, logr.Discard())
	hooks, err := mcwebhook.New(mgr, mcwebhook.Options{
		Name: name, URL: "https://hub.example.com", Namespace: s.Local.CreateNamespace(t), Configurations: configurations,
		Server: webhook.Options{Host: "127.0.0.1", Port: freePort(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	hooks.GetWebhookServer().Register("/any", http.NotFoundHandler())
	start(t, hooks)
}

// addProgram plays a program "limits" of the hub that keeps webhooks in members, and returns its ID.
func (s *stage) addProgram(t *testing.T) string {
	t.Helper()
	const id = "id-of-limits"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "limits-webhooks"}, Data: map[string][]byte{"id": []byte(id)}}
	if err := s.Local.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return id
}

// newWebhooks is what a program keeps in a member, as it says itself there.
func newWebhooks(name, program, id, member string) client.Object {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{mcwebhook.LabelName: program},
		Annotations: map[string]string{"webhooks.fleet-runtime.dev/program": fmt.Sprintf(`{"id":%q,"url":"https://%s.example.com","member":%q}`, id, program, member)},
	}}
}

// webhooksOf returns the names of the configurations of webhooks in the member.
func (s *stage) webhooksOf(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	validating, mutating := &admissionv1.ValidatingWebhookConfigurationList{}, &admissionv1.MutatingWebhookConfigurationList{}
	for _, list := range []client.ObjectList{validating, mutating} {
		if err := s.Members[0].Client().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range validating.Items {
		names[validating.Items[i].Name] = true
	}
	for i := range mutating.Items {
		names[mutating.Items[i].Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestTheWebhooksOfARunningProgramLeaveWithTheMember(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startWebhooks(t, "limits")
	if r := s.joinBy(t, webhookRules); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	eventually(t, "the webhooks are there", func() bool { return slices.Equal(s.webhooksOf(t), []string{"limits"}) })
	r := s.run(t, "leave", "east", "--member-context", "member", "--dependents=keep")
	if left := s.webhooksOf(t); r.code != 0 || len(left) > 0 {
		t.Errorf("there are still %q: %+v", left, r)
	}
	_, after, _ := strings.Cut(r.errOut, "ValidatingWebhookConfiguration limits: deleted")
	if !strings.Contains(after, "ServiceAccount fleet-system/fleet: deleted") {
		t.Errorf("the webhooks did not go first:\n%s", r.errOut)
	}
}

func TestWebhooksThatAreNotOfTheFleetStayAndAreNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	id := s.addProgram(t)
	unlabelled := newWebhooks("without-label", "limits", id, "east")
	unlabelled.SetLabels(nil)
	silent := newWebhooks("without-program", "limits", id, "east")
	silent.SetAnnotations(nil)
	for _, obj := range []client.Object{
		newWebhooks("ours", "limits", id, "east"), newWebhooks("of-all-namespaces", "limits", id, "default/east"),
		newWebhooks("of-another-fleet", "limits", "id-of-another", "east"), newWebhooks("of-no-program", "images", id, "east"),
		newWebhooks("of-another-member", "limits", id, "west"), unlabelled, silent,
	} {
		if err := s.Members[0].Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r := s.run(t, "leave", "east", "--member-context", "member")
	want := []string{"of-another-fleet", "of-another-member", "of-no-program", "without-label", "without-program"}
	if left := s.webhooksOf(t); r.code != 0 || !slices.Equal(left, want) {
		t.Errorf("there are still %q, want %q: %+v", left, want, r)
	}
	for name, why := range map[string]string{
		"of-another-fleet": "no Secret limits-webhooks", "of-no-program": "no Secret images-webhooks", "of-another-member": `for the member "west"`,
		"without-program": "it does not say",
	} {
		_, line, _ := strings.Cut(r.errOut, "MutatingWebhookConfiguration "+name+": kept, since ")
		if line, _, _ = strings.Cut(line, "\n"); !strings.Contains(line, why) {
			t.Errorf("of %s it says %q, want %q", name, line, why)
		}
	}
}

// writesOn calls a function after a line that has some text.
type writesOn struct {
	bytes.Buffer

	text string
	then func()
}

func (w *writesOn) Write(line []byte) (int, error) {
	n, err := w.Buffer.Write(line)
	if bytes.Contains(line, []byte(w.text)) {
		w.then()
	}
	return n, err
}

func TestWebhooksThatAreWrittenWhileAMemberLeavesGoToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	write := func() {
		if err := s.Members[0].Client().Create(t.Context(), newWebhooks("limits", "limits", "id-of-limits", "east")); err != nil {
			t.Error(err)
		}
	}
	s.addProgram(t)
	write()
	errOut := &writesOn{text: "MutatingWebhookConfiguration limits: deleted"}
	errOut.then = func() { errOut.then = func() {}; write() }
	code := command.Run(t.Context(), "v1.2.3", []string{"mcctl", "leave", "east", "--kubeconfig", s.kubeconfig, "--member-kubeconfig", s.kubeconfig, "--member-context", "member"},
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: errOut})
	if left := s.webhooksOf(t); code != 0 || len(left) > 0 {
		t.Errorf("exit code %d, and there are still %q:\n%s", code, left, errOut.String())
	}
}

func TestTheCommandsThatLeavePrintsShowTheWebhooksOfEachProgram(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if err := s.Members[0].Client().Create(t.Context(), newWebhooks("limits", "limits", s.addProgram(t), "east")); err != nil {
		t.Fatal(err)
	}
	forced := s.run(t, "leave", "east", "--force")
	out := s.byHand(t, forced.out)
	if !strings.Contains(out, "MutatingWebhookConfiguration") || !strings.Contains(out, `"url":"https://limits.example.com","member":"east"`) {
		t.Errorf("they show\n%s\nby\n%s", out, forced.out)
	}
}

func TestWebhooksThatAloneAreLeftOfAMemberStayAndAreNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(t, newWebhooks("of-east", "limits", "id-of-another", "east"), newWebhooks("of-west", "limits", "id-of-another", "west"))
	leave := []string{"leave", "east", "--member-context", "member"}
	s.changesNothing(t, "nothing to undo", leave...)
	s.changesNothing(t, "MutatingWebhookConfiguration of-east: kept, since the program at https://limits.example.com keeps it, and no Secret limits-webhooks", leave...)
	if r := s.run(t, leave...); strings.Contains(r.errOut, "of-west") {
		t.Errorf("it names those of another member:\n%s", r.errOut)
	}
}
