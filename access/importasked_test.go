package access

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// answers are what an API server answers, by the method and the path of requests. There is nothing else.
type answers map[string]any

// ServeHTTP implements [http.Handler].
func (a answers) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	says, is := a[req.Method+" "+req.URL.Path]
	if !is {
		missing := apierrors.NewNotFound(corev1.Resource("things"), path.Base(req.URL.Path)).Status()
		missing.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		says = missing
	}
	code := http.StatusOK
	if status, is := says.(metav1.Status); is {
		code = int(status.Code)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	if err := json.NewEncoder(rw).Encode(says); err != nil {
		panic(err)
	}
}

// knows is a client that knows one access.
type knows struct {
	client.Client

	access *v1alpha1.ClusterAccess
}

// Get implements [client.Reader].
func (k knows) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k.access.DeepCopyInto(obj.(*v1alpha1.ClusterAccess)) //nolint:forcetypeassert // nothing else is asked for
	return nil
}

// TestAHubThatRefusesTellsNothingOfTheCluster, which goes on being asked as seldom as before, unless it was asked and has answered.
func TestAHubThatRefusesTellsNothingOfTheCluster(t *testing.T) {
	t.Parallel()
	made := map[string]any{
		"POST /api/v1/namespaces/default/serviceaccounts/lister/token": authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Status:   authenticationv1.TokenRequestStatus{Token: "e30.e30.c2ln", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))},
		},
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews": authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:default:lister"}},
		},
	}
	member := httptest.NewTLSServer(answers(made))
	t.Cleanup(member.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: member.Certificate().Raw})
	minter := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{
		v1alpha1.MinterToken: []byte("x"), v1alpha1.MinterServer: []byte(member.URL), v1alpha1.MinterCA: ca,
		v1alpha1.MinterNamespace: []byte("a"), v1alpha1.MinterServiceAccount: []byte("b"),
	}}
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "x", errors.New("no")).Status()
	const secrets = "/api/v1/namespaces/team/secrets"
	for name, tc := range map[string]struct {
		hub    answers
		spec   v1alpha1.ClusterAccessSpec
		resets bool
	}{
		"the Secret may not be read": {hub: answers{"GET " + secrets + "/given": forbidden}},
		"nor that of the minter":     {hub: answers{"GET /api/v1/namespaces/fleet/secrets/east-minter": forbidden}},
		"no token of the hub": {
			hub:  answers{"POST /api/v1/namespaces/fleet/serviceaccounts/operator/token": forbidden},
			spec: v1alpha1.ClusterAccessSpec{Federated: &v1alpha1.Federated{ServiceAccountName: "operator"}},
		},
		"no account in the hub": {spec: v1alpha1.ClusterAccessSpec{Federated: &v1alpha1.Federated{ServiceAccountName: "operator"}}},
		"the Secret may not be written, once the cluster has answered": {
			hub: answers{"GET /api/v1/namespaces/fleet/secrets/east-minter": minter, "POST " + secrets: forbidden}, resets: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.hub)
			t.Cleanup(server.Close)
			hub, err := NewHub(&rest.Config{Host: server.URL}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east", Generation: 1}, Spec: tc.spec}
			a.Spec.Server, a.Spec.CABundle = member.URL, ca
			a.Spec.AllowedImports = []v1alpha1.AllowedImports{{Namespaces: []string{"team"}, ServiceAccounts: []string{"default/lister"}}}
			if a.Spec.Federated == nil {
				a.Spec.Minter = &v1alpha1.Minter{SecretName: "east-minter"}
			}
			r := &importer{Imports: Imports{Namespace: "fleet"}, hub: hub, client: knows{access: a}, lines: lines{lines: map[client.ObjectKey]*line{}}}
			failed := errors.New("no answer")
			line, _, _ := r.lines.enter(a, time.Now())
			r.lines.leave(line, time.Now(), failed)
			line.next = time.Time{} // it is time for the next attempt
			i := &v1alpha1.ServiceAccountImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "given"},
				Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: "east", Namespace: "default", Name: "lister"},
				Status:     v1alpha1.ServiceAccountImportStatus{Secrets: []corev1.LocalObjectReference{{Name: "given"}}},
			}
			if _, err := r.keep(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			if reset := line.err == nil; reset != tc.resets || line.inside != 0 {
				t.Errorf("that the cluster has failed is forgotten: %t, want %t; the import says %+v", reset, tc.resets, i.Status.Conditions)
			}
		})
	}
}

// TestASecretOfWhichAGatewayHasAPageIsNotTakenBack: the import goes on to say that it has it, and it is tried again.
func TestASecretOfWhichAGatewayHasAPageIsNotTakenBack(t *testing.T) {
	t.Parallel()
	there := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "given", OwnerReferences: []metav1.OwnerReference{{UID: "1", Controller: new(true)}},
	}}
	for name, tc := range map[string]struct {
		hub  http.Handler
		left int
	}{
		"it is gone":          {answers{}, 0},
		"its read has a page": {http.NotFoundHandler(), 1},
		"its deletion has, as it is there": {http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodDelete {
				http.NotFound(w, req)
				return
			}
			answers{"GET /api/v1/namespaces/team/secrets/given": there}.ServeHTTP(w, req)
		}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.hub)
			t.Cleanup(server.Close)
			hub, err := NewHub(&rest.Config{Host: server.URL}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := &importer{Imports: Imports{Namespace: "fleet"}, hub: hub, client: knows{access: &v1alpha1.ClusterAccess{}}}
			i := &v1alpha1.ServiceAccountImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "given", UID: "1"},
				Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: "east", Namespace: "default", Name: "lister"},
				Status:     v1alpha1.ServiceAccountImportStatus{Secrets: []corev1.LocalObjectReference{{Name: "given"}}},
			}
			if _, err := r.keep(t.Context(), i); err != nil || len(i.Status.Secrets) != tc.left {
				t.Errorf("it says that it has the Secrets %v, %v", i.Status.Secrets, err)
			}
		})
	}
}
