package v1alpha1_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func startHub(t *testing.T) (cl client.Client, namespace string) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	hub := pool.Share(t, mctest.Options{CRDPaths: []string{"crds.yaml"}, Scheme: scheme})
	return hub.Client(), hub.CreateNamespace(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newAccess(namespace string) *v1alpha1.ClusterAccess {
	return &v1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "east-"},
		Spec: v1alpha1.ClusterAccessSpec{
			Server: "https://east.example.com:6443/path", CABundle: []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
			Federated: &v1alpha1.Federated{ServiceAccountName: "operator"},
		},
	}
}

func newMinter() *v1alpha1.Minter {
	return &v1alpha1.Minter{SecretName: "minter", ServiceAccountNamespace: "fleet", ServiceAccountName: "worker"}
}

func newImport(namespace string) *v1alpha1.ServiceAccountImport {
	return &v1alpha1.ServiceAccountImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "lister-"},
		Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: "fleet/east", Namespace: "shop", Name: "lister"},
	}
}

func TestAnAccessThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	for name, test := range map[string]struct {
		spoil func(s *v1alpha1.ClusterAccessSpec)
		says  string
	}{
		"neither mode":                 {func(s *v1alpha1.ClusterAccessSpec) { s.Federated = nil }, "exactly one of federated and minter"},
		"both modes":                   {func(s *v1alpha1.ClusterAccessSpec) { s.Minter = newMinter() }, "exactly one of federated and minter"},
		"no server":                    {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "" }, "spec.server"},
		"http":                         {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "http://east.example.com" }, "begins with https://"},
		"a server without a host":      {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https:///path" }, "begins with https://"},
		"a server with a user":         {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://user@east.example.com" }, "no user"},
		"a server with a query":        {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://east.example.com/?a=b" }, "no user, query"},
		"a server with a fragment":     {func(s *v1alpha1.ClusterAccessSpec) { s.Server = "https://east.example.com#a" }, "fragment"},
		"a CA that is no PEM":          {func(s *v1alpha1.ClusterAccessSpec) { s.CABundle = []byte("CA") }, "caBundle must hold certificates"},
		"a key beside the CA":          {func(s *v1alpha1.ClusterAccessSpec) { s.CABundle = append(s.CABundle, "PRIVATE KEY"...) }, "no key"},
		"a proxy of another scheme":    {func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "ftp://proxy.example.com" }, "proxyURL must"},
		"a proxy with a password":      {func(s *v1alpha1.ClusterAccessSpec) { s.ProxyURL = "http://a:b@proxy.example.com" }, "no place for credentials"},
		"federated for too short":      {func(s *v1alpha1.ClusterAccessSpec) { s.Federated.ExpirationSeconds = 599 }, "greater than or equal to 600"},
		"federated for too long":       {func(s *v1alpha1.ClusterAccessSpec) { s.Federated.ExpirationSeconds = 3601 }, "less than or equal to 3600"},
		"federated as nobody":          {func(s *v1alpha1.ClusterAccessSpec) { s.Federated.ServiceAccountName = "" }, "spec.federated.serviceAccountName"},
		"minted for too short":         {func(s *v1alpha1.ClusterAccessSpec) { mint(s).ExpirationSeconds = 599 }, "greater than or equal to 600"},
		"minted for too long":          {func(s *v1alpha1.ClusterAccessSpec) { mint(s).ExpirationSeconds = 86401 }, "less than or equal to 86400"},
		"minted without a Secret":      {func(s *v1alpha1.ClusterAccessSpec) { mint(s).SecretName = "" }, "spec.minter.secretName"},
		"minted for a path":            {func(s *v1alpha1.ClusterAccessSpec) { mint(s).ServiceAccountNamespace = "../secrets" }, "spec.minter.serviceAccountNamespace"},
		"imports of no account":        {func(s *v1alpha1.ClusterAccessSpec) { allow(s, "shop") }, "spec.allowedImports[0].serviceAccounts"},
		"imports of half an account":   {func(s *v1alpha1.ClusterAccessSpec) { allow(s, "shop", "lister") }, "spec.allowedImports[0].serviceAccounts[0]"},
		"imports into every namespace": {func(s *v1alpha1.ClusterAccessSpec) { allow(s, "*", "shop/lister") }, "spec.allowedImports[0].namespaces[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccess(namespace)
			test.spoil(&a.Spec)
			wantInvalid(t, cl.Create(t.Context(), a), test.says)
		})
	}
}

func mint(s *v1alpha1.ClusterAccessSpec) *v1alpha1.Minter {
	s.Federated, s.Minter = nil, newMinter()
	return s.Minter
}

func allow(s *v1alpha1.ClusterAccessSpec, namespace string, accounts ...string) {
	s.AllowedImports = []v1alpha1.AllowedImports{{Namespaces: []string{namespace}, ServiceAccounts: append([]string{}, accounts...)}}
}

func wantInvalid(t *testing.T, err error, says string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("the API server says %v, want that it is invalid: %s", err, says)
	}
}

func TestAnAccessIsKeptWithItsDefaults(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	federated, minted := newAccess(namespace), newAccess(namespace)
	mint(&minted.Spec)
	minted.Spec.CABundle = nil
	allow(&minted.Spec, "shop", "shop/lister")
	must(t, cl.Create(t.Context(), federated))
	must(t, cl.Create(t.Context(), minted))
	if federated.Spec.Federated.ExpirationSeconds != 3600 || minted.Spec.Minter.ExpirationSeconds != 3600 {
		t.Errorf("tokens are for %d and %d seconds, want 3600", federated.Spec.Federated.ExpirationSeconds, minted.Spec.Minter.ExpirationSeconds)
	}
}

func TestAnAccessAndAnImportKeepNamesAsLongAsNamesMayBe(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	long := strings.Repeat("n", 253)
	a, i := newAccess(namespace), newImport(namespace)
	a.Name, i.Name = long, long
	mint(&a.Spec)
	a.Spec.Minter = &v1alpha1.Minter{SecretName: long, ServiceAccountNamespace: long[:63], ServiceAccountName: long}
	allow(&a.Spec, long[:63], long[:63]+"/"+long)
	i.Spec.ClusterName, i.Spec.Namespace, i.Spec.Name, i.Spec.SecretName = long[:63]+"/"+long, long[:63], long, long
	must(t, cl.Create(t.Context(), a))
	must(t, cl.Create(t.Context(), i))
}

func TestWhatAnImportIsOfNeverChanges(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	for field, change := range map[string]func(s *v1alpha1.ServiceAccountImportSpec){
		"clusterName": func(s *v1alpha1.ServiceAccountImportSpec) { s.ClusterName = "fleet/west" },
		"namespace":   func(s *v1alpha1.ServiceAccountImportSpec) { s.Namespace = "kube-system" },
		"name":        func(s *v1alpha1.ServiceAccountImportSpec) { s.Name = "admin" },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			i := newImport(namespace)
			must(t, cl.Create(t.Context(), i))
			change(&i.Spec)
			wantInvalid(t, cl.Update(t.Context(), i), field+" is immutable")
		})
	}
}

func TestAnImportThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	for field, spoil := range map[string]func(s *v1alpha1.ServiceAccountImportSpec){
		"spec.clusterName":       func(s *v1alpha1.ServiceAccountImportSpec) { s.ClusterName = "" },
		"spec.namespace":         func(s *v1alpha1.ServiceAccountImportSpec) { s.Namespace = "../secrets" },
		"spec.name":              func(s *v1alpha1.ServiceAccountImportSpec) { s.Name = "lister/token" },
		"spec.expirationSeconds": func(s *v1alpha1.ServiceAccountImportSpec) { s.ExpirationSeconds = 599 },
		"spec.secretName":        func(s *v1alpha1.ServiceAccountImportSpec) { s.SecretName = "Not a name" },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			i := newImport(namespace)
			spoil(&i.Spec)
			wantInvalid(t, cl.Create(t.Context(), i), field)
		})
	}
}

func TestTheStatusIsWrittenApartFromTheSpec(t *testing.T) {
	t.Parallel()
	cl, namespace := startHub(t)
	a, i := newAccess(namespace), newImport(namespace)
	must(t, cl.Create(t.Context(), a))
	must(t, cl.Create(t.Context(), i))
	now := metav1.Now().Rfc3339Copy()
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected, LastTransitionTime: now, ObservedGeneration: 1,
	}
	a.Status = v1alpha1.ClusterAccessStatus{
		Conditions: []metav1.Condition{ready}, Subject: "system:serviceaccount:fleet:worker", ExpirationTime: now, RenewTime: now,
	}
	i.Status = v1alpha1.ServiceAccountImportStatus{
		Secrets: []corev1.LocalObjectReference{{Name: i.Name}}, Conditions: []metav1.Condition{ready}, ExpirationTime: now, RenewTime: now,
	}
	wantA, wantI := a.DeepCopy(), i.DeepCopy()
	must(t, cl.Status().Update(t.Context(), a))
	must(t, cl.Status().Update(t.Context(), i))
	if diff := cmp.Diff(wantA.Status, a.Status) + cmp.Diff(wantI.Status, i.Status); diff != "" {
		t.Errorf("the status is not kept (-written, +kept):\n%s", diff)
	}
}

func newLists() (*v1alpha1.ClusterAccessList, *v1alpha1.ServiceAccountImportList) {
	a, i := newAccess("fleet"), newImport("shop")
	a.Labels, i.Labels = map[string]string{"key": "value"}, map[string]string{"key": "value"}
	a.Spec.Minter = newMinter()
	allow(&a.Spec, "shop", "shop/lister")
	a.Status.Conditions, i.Status.Conditions = []metav1.Condition{{Type: "Ready"}}, []metav1.Condition{{Type: "Ready"}}
	i.Status.Secrets = []corev1.LocalObjectReference{{Name: "lister"}}
	return &v1alpha1.ClusterAccessList{ListMeta: metav1.ListMeta{RemainingItemCount: new(int64(1))}, Items: []v1alpha1.ClusterAccess{*a}},
		&v1alpha1.ServiceAccountImportList{ListMeta: metav1.ListMeta{RemainingItemCount: new(int64(1))}, Items: []v1alpha1.ServiceAccountImport{*i}}
}

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	t.Parallel()
	accesses, imports := newLists()
	a, i := accesses.DeepCopy(), imports.DeepCopy()
	if diff := cmp.Diff(accesses, a) + cmp.Diff(imports, i); diff != "" {
		t.Fatalf("the copy is not equal (-original, +copy):\n%s", diff)
	}
	*a.RemainingItemCount, *i.RemainingItemCount = 2, 2
	spec := &a.Items[0].Spec
	a.Items[0].Labels["key"], i.Items[0].Labels["key"] = "changed", "changed"
	spec.CABundle[0], spec.Federated.ServiceAccountName, spec.Minter.SecretName = 'c', "changed", "changed"
	spec.AllowedImports[0].Namespaces[0], spec.AllowedImports[0].ServiceAccounts[0] = "changed", "changed"
	a.Items[0].Status.Conditions[0].Type, i.Items[0].Status.Conditions[0].Type = "changed", "changed"
	i.Items[0].Status.Secrets[0].Name = "changed"
	wantAccesses, wantImports := newLists()
	if diff := cmp.Diff(wantAccesses, accesses) + cmp.Diff(wantImports, imports); diff != "" {
		t.Errorf("changing the copy has changed the original (-before, +after):\n%s", diff)
	}
}
