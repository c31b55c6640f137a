package mctest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestAnAPIServerRunsWithFlagsOfTheTest(t *testing.T) {
	cp := Start(t, Options{}).Local
	ns := cp.CreateNamespace(t)
	const issuer = "https://another.example.com"
	before := cp.Config().Host
	cp.RestartWith(t, "--service-account-issuer="+issuer, "--service-account-issuer="+before+"/")
	clients, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
		t.Errorf("the data is not what it was: %v", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := clients.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "a", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{issuer, before + "/"}, request.Spec.Audiences); diff != "" {
		t.Errorf("tokens are for other audiences than those of the flags (-want, +got):\n%s", diff)
	}
}

func TestAControlPlaneWithFlagsOfATestIsNotGivenToTheNext(t *testing.T) {
	var own Pool
	t.Cleanup(func() {
		if err := own.close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("with a flag", func(t *testing.T) {
		own.Start(t, Options{}).Local.RestartWith(t, "--service-account-max-token-expiration=1h")
	})
	if len(own.idle) != 0 {
		t.Error("the pool has kept it")
	}
}

func TestFlagsAreWrittenWithTheirValues(t *testing.T) {
	got, err := parseFlags([]string{"--a=1", "--b=x=y", "--a=2", "--c="})
	want := map[string][]string{"a": {"1", "2"}, "b": {"x=y"}, "c": {""}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the error %v, and (-want, +got):\n%s", err, diff)
	}
	for _, wrong := range []string{"a=1", "--a", "--=1", ""} {
		if _, err := parseFlags([]string{wrong}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
