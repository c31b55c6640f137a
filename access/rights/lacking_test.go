package rights_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// TestTheCallerIsToldWhatItLacks for exactly the rights that the API server would not let it give.
func TestTheCallerIsToldWhatItLacks(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	want := []rights.Right{
		parse(t, "get pods"), parse(t, "get pods in default"), parse(t, "list pods in default"), parse(t, "get secrets a in default"), parse(t, "get secrets in default"),
		parse(t, "* configmaps in default"), parse(t, "get pods/log in default"), parse(t, "get /metrics"),
	}
	roles := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "clusterroles"}, Verbs: []string{"create"}}
	escalate := roles
	escalate.Verbs = []string{"create", "escalate", "bind"}
	all := []string{
		"get pods", "get /metrics", "* configmaps in default", "get pods in default", "list pods in default", "get pods/log in default",
		"get secrets in default", "get secrets a in default",
	}
	for name, tc := range map[string]struct {
		config  *rest.Config
		lacking []string
		refused []string // where that is more
	}{
		"administrator": {cp.Config(), nil, nil},
		"reader": {
			cp.AddUser(t, "reader", roles, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"a"}, Verbs: []string{"*"}}),
			[]string{"get /metrics", "* configmaps in default", "get pods/log in default", "get secrets in default"},
			nil,
		},
		"nobody":                {cp.AddUser(t, "nobody", roles), all, nil},
		"one that may escalate": {cp.AddUser(t, "escalates", escalate), nil, all},
	} {
		t.Run(name, func(t *testing.T) {
			clients, err := kubernetes.NewForConfig(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			lacking, err := rights.Lacking(t.Context(), clients.AuthorizationV1(), want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.lacking, texts(lacking)); diff != "" {
				t.Errorf("lacking differs (-want, +got):\n%s", diff)
			}
			refused, err := rights.Refused(t.Context(), clients.AuthorizationV1(), want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append(tc.lacking, tc.refused...), texts(refused)); diff != "" {
				t.Errorf("refused differs (-want, +got):\n%s", diff)
			}
			for _, r := range want { // the API server agrees
				role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: rights.Rules([]rights.Right{r})}
				if r.Namespace != "" {
					continue
				}
				_, err := clients.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if mayNot := err != nil && strings.Contains(err.Error(), "not currently held"); mayNot != (len(rights.Missing(lacking, []rights.Right{r})) == 0) {
					t.Errorf("giving %s ends with: %v", r, err)
				}
			}
		})
	}
}

// texts are what rights are written as.
func texts(all []rights.Right) (texts []string) {
	for _, r := range all {
		texts = append(texts, r.String())
	}
	return texts
}

func TestAServerThatCannotBeAskedSaysNothingOfRights(t *testing.T) {
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + mctest.Address(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rights.Lacking(t.Context(), clients.AuthorizationV1(), []rights.Right{parse(t, "get pods")}); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rights.Lacking(ctx, clients.AuthorizationV1(), []rights.Right{parse(t, "get pods in a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
}

// TestAnAnswerOfCountlessRightsTakesNoMemory: a few hundred words in one rule stand for all that can be put together of them.
func TestAnAnswerOfCountlessRightsTakesNoMemory(t *testing.T) {
	words := make([]string, 30)
	for i := range words {
		words[i] = strconv.Itoa(i)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		of := metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"}
		var answer any = authorizationv1.SelfSubjectAccessReview{TypeMeta: of}
		if strings.HasSuffix(req.URL.Path, "/selfsubjectrulesreviews") {
			of.Kind = "SelfSubjectRulesReview"
			rule := authorizationv1.ResourceRule{Verbs: words, APIGroups: words, Resources: words, ResourceNames: words}
			answer = authorizationv1.SelfSubjectRulesReview{TypeMeta: of, Status: authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{rule}}}
		}
		rw.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(rw).Encode(answer); err != nil {
			panic(err)
		}
	}))
	t.Cleanup(server.Close)
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refused, err := rights.Refused(t.Context(), clients.AuthorizationV1(), []rights.Right{
		{Verb: "1", Group: "2", Resource: "3", Name: "4", Namespace: "a"}, {Verb: "1", Group: "2", Resource: "3", Namespace: "a"},
	})
	runtime.ReadMemStats(&after)
	if diff := cmp.Diff([]string{"1 3.2 in a"}, texts(refused)); diff != "" || err != nil {
		t.Errorf("refused differs (-want, +got), and the error is %v:\n%s", err, diff)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 10<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
}
