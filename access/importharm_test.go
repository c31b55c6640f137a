package access_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// staysReady fails the test if an import is not ready meanwhile, in which many attempts are made.
func (w world) staysReady(t *testing.T, name string) {
	t.Helper()
	stage.Stays(t, 5*time.Second, name+" is ready", func() bool {
		i := &v1alpha1.ServiceAccountImport{}
		accesstest.Must(t, w.hub.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, i))
		return meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// limitTokens lets a member refuse tokens that live for more than two hours.
func limitTokens(t *testing.T, member *mctest.ControlPlane) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "short"}
	accesstest.Create(t, member, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"serviceaccounts/token"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "object.spec.expirationSeconds <= 7200", Message: "two hours are enough"}},
	}})
	accesstest.Create(t, member, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	until(t, "the policy holds", func() bool {
		of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: lister}}
		long := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86400))}}
		return member.Client().SubResource("token").Create(t.Context(), of, long) != nil
	})
}

func TestAnImportThatAPolicyOfTheClusterRefusesHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	limitTokens(t, w.members[0])
	w.importQuickly(t)
	accesstest.Create(t, w.hub, w.newImport("modest", a.Name, lister))
	w.waitForImport(t, "modest", v1alpha1.ReasonAsExpected)
	greedy := w.newImport("greedy", a.Name, lister)
	greedy.Spec.ExpirationSeconds = 86400
	accesstest.Create(t, w.hub, greedy)
	w.staysReady(t, "modest")
	w.waitForImport(t, "greedy", fleet.ReasonServerError)
}

// TestAnImportOfAnAccountThatIsBeingDeletedHarmsNoOther: Kubernetes makes tokens for one that a finalizer keeps, and accepts none of them.
func TestAnImportOfAnAccountThatIsBeingDeletedHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister, "going")
	going := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "going", Finalizers: []string{"example.com/stays"}}}
	accesstest.Create(t, w.members[0], going)
	accesstest.Must(t, w.members[0].Client().Delete(t.Context(), going))
	w.allowImports(t, a, lister, "going")
	w.importQuickly(t)
	accesstest.Create(t, w.hub, w.newImport("good", a.Name, lister))
	w.waitForImport(t, "good", v1alpha1.ReasonAsExpected)
	accesstest.Create(t, w.hub, w.newImport("going", a.Name, "going"))
	// Until a minute after the deletion its tokens are accepted.
	w.waitForImport(t, "going", v1alpha1.ReasonTokenRefused)
	w.staysReady(t, "good")
}

func TestAnImportWhoseOwnersBreakItsSecretHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	w.importQuickly(t)
	texts := map[string]string{"lines": "a\nb", "long": strings.Repeat("x", 300_000)}
	for _, name := range []string{"good", "lines", "long"} {
		accesstest.Create(t, w.hub, w.newImport(name, a.Name, lister))
		w.waitForImport(t, name, v1alpha1.ReasonAsExpected)
	}
	for name, text := range texts {
		secret := w.secretNamed(t, name)
		cfg, err := clientcmd.Load(secret.Data[v1alpha1.ImportConfig])
		accesstest.Must(t, err)
		cfg.AuthInfos[a.Name].Token = text
		secret.Data[v1alpha1.ImportToken] = []byte(text)
		secret.Data[v1alpha1.ImportConfig], err = clientcmd.Write(*cfg)
		accesstest.Must(t, err)
		accesstest.Must(t, w.hub.Client().Update(t.Context(), secret))
	}
	w.staysReady(t, "good")
	for name, text := range texts {
		until(t, name+" has a token that works", func() bool {
			secret := w.secretNamed(t, name)
			return string(secret.Data[v1alpha1.ImportToken]) != text && listsPods(t, secret) == nil
		})
	}
}

func TestAClusterThatCallsTheAccountOtherwiseMakesNoLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	var asked atomic.Int32
	now := time.Now().Unix()
	token := grants(t, fmt.Sprintf(`{"iat": %d, "exp": %d, "sub": "system:serviceaccount:default:%s"}`, now, now+3600, lister), time.Hour, &asked)
	a := w.hostile(t, "gateway", calls("gateway:"+lister, token))
	w.allowImports(t, a, lister)
	accesstest.Create(t, w.hub, w.newImport("given", a.Name, lister))
	w.importQuickly(t)
	i := w.waitForImport(t, "given", v1alpha1.ReasonAnotherUser)
	if message := i.Status.Conditions[0].Message; !strings.Contains(message, "gateway:"+lister) {
		t.Errorf("the message is %q", message)
	}
	before := asked.Load()
	until(t, "it is tried again", func() bool { return asked.Load() > before+1 })
	if w.secretNamed(t, "given") != nil {
		t.Error("there is a Secret")
	}
}

// TestAnImportThatCannotBeDecodedHarmsNoOther: an API server of Kubernetes 1.35 takes 600.0000001 for an integer. Its Secret stays while it is allowed.
func TestAnImportThatCannotBeDecodedHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	export(t, w.members[0], minterSubject(), lister)
	w.allowImports(t, a, lister)
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("serviceaccountimports.access.fleet-runtime.dev")
	accesstest.Must(t, w.hub.Client().Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(
		`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/expirationSeconds/type","value":"number"}]`))))
	almost := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"clusterName": a.Name, "namespace": "default", "name": lister, "expirationSeconds": 600.0000001,
	}}}
	almost.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.KindServiceAccountImport))
	almost.SetNamespace(w.namespace)
	almost.SetName("almost")
	until(t, "the API server takes any number", func() bool { return w.hub.Client().Create(t.Context(), almost) == nil })
	accesstest.Create(t, w.hub, w.newImport("good", a.Name, lister))
	w.importQuickly(t)
	w.waitForImport(t, "good", v1alpha1.ReasonAsExpected)
	told := func() {
		t.Helper()
		i := w.waitForImport(t, "almost", v1alpha1.ReasonInvalid)
		if ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "600.0000001") {
			t.Errorf("the message is %s", ready.Message)
		}
	}
	set := func(seconds string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"expirationSeconds":`+seconds+`}}`))
		accesstest.Must(t, w.hub.Client().Patch(t.Context(), almost, patch))
	}
	told()
	set("600")
	w.waitForImport(t, "almost", v1alpha1.ReasonAsExpected)
	set("600.0000001")
	told()
	if w.secretNamed(t, "almost") == nil {
		t.Error("its Secret is gone")
	}
	w.allowImports(t, a)
	w.waitForImport(t, "almost", v1alpha1.ReasonNotAllowed)
	if w.secretNamed(t, "almost") != nil {
		t.Error("its Secret is there although nothing may be imported")
	}
}

// TestAStatusOfAnImportThatCannotBeDecodedIsWrittenAnew, whole, also where there is no token: no part of it stays.
func TestAStatusOfAnImportThatCannotBeDecodedIsWrittenAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.mint(t)
	w.allowImports(t, a, lister)
	w.create(t, "paused", a, func(s *v1alpha1.ClusterAccessSpec) { s.Paused = true })
	all := map[string]string{"paused": v1alpha1.ReasonPaused, "unknown": v1alpha1.ReasonClusterNotFound}
	for cluster := range all {
		i := w.newImport("of-"+cluster, cluster, lister)
		accesstest.Create(t, w.hub, i)
		forged := `{"status":{"renewTime":"2026-01-01t00:00:00z","expirationTime":"2026-01-01t00:00:00z","secrets":[{"name":"forged"}]}}`
		accesstest.Must(t, w.hub.Client().Status().Patch(t.Context(), i, client.RawPatch(types.MergePatchType, []byte(forged))))
	}
	w.importQuickly(t)
	for cluster, reason := range all {
		w.waitForImport(t, "of-"+cluster, reason)
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.KindServiceAccountImport))
		accesstest.Must(t, w.hub.Client().Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "of-" + cluster}, stored))
		if status, _ := stored.Object["status"].(map[string]any); len(status) != 1 || status["conditions"] == nil {
			t.Errorf("%s: the status is %v", cluster, status)
		}
	}
}
