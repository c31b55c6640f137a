package kubeconfig_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// everyFormat are all formats at once; Flux's Secrets have the label "mine".
func everyFormat() []kubeconfig.Format {
	return []kubeconfig.Format{
		kubeconfig.Labelled(), kubeconfig.ArgoCD(), kubeconfig.ClusterAPI(), kubeconfig.Flux(mine), kubeconfig.Istio(),
	}
}

// argoCDLabel marks Secrets of Argo CD, with the value "cluster".
const argoCDLabel = "argocd.argoproj.io/secret-type"

// createIn creates the Secret in a namespace.
func createIn(t *testing.T, cp *mctest.ControlPlane, namespace string, s *corev1.Secret) *corev1.Secret {
	t.Helper()
	s.Namespace = namespace
	if err := cp.Client().Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func argoCDSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{argoCDLabel: "cluster"}}, Data: data}
}

// argoCDOf returns the data of a Secret of Argo CD that leads to a control plane: with a token if there is one, otherwise
// with the certificates of cfg.
func argoCDOf(t *testing.T, name string, cfg *rest.Config, token string) map[string][]byte {
	t.Helper()
	tls := object{"insecure": false, "caData": cfg.CAData}
	config := object{"tlsClientConfig": tls}
	if token != "" {
		config["bearerToken"] = token
	} else {
		tls["certData"], tls["keyData"] = cfg.CertData, cfg.KeyData
	}
	return map[string][]byte{"name": []byte(name), "server": []byte(cfg.Host), "config": toJSON(t, config)}
}

// tokenOf returns a token of a new service account that may do everything.
func tokenOf(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cp.CreateNamespace(t), Name: "manager"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	request := &authenticationv1.TokenRequest{}
	for _, err := range []error{
		cp.Client().Create(t.Context(), account),
		cp.Client().Create(t.Context(), binding),
		cp.Client().SubResource("token").Create(t.Context(), account, request),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return request.Status.Token
}

// startManager runs a manager with the provider until the test ends, and returns its fleet.
func startManager(t *testing.T, cp *mctest.ControlPlane, p kubeconfig.Provider) *fleet.Fleet {
	t.Helper()
	mgr, err := mcmanager.New(cp.Config(), p, mcmanager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return mgr.GetFleet()
}

// engaged waits until the member is engaged.
func engaged(t *testing.T, f *fleet.Fleet, name fleet.ClusterName) *fleet.Engagement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for change := range f.Changes(ctx) {
		if change.Status.Name != name {
			continue
		}
		if e, err := f.Engagement(name); err == nil {
			return e
		}
	}
	status, _ := f.Status(name)
	t.Fatalf("member %q was not engaged; it is %s (%s): %s", name, status.State, status.Reason, status.Message)
	return nil
}

func TestMembersOfAllFormatsAtOnceAreEngaged(t *testing.T) {
	planes := pool.Start(t, mctest.Options{Clusters: 2})
	cp, ns := planes.Local, planes.Local.CreateNamespace(t)
	one, two := planes.Members[0], planes.Members[1]
	f := startManager(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})

	create(t, cp, ns, "ours", withKey("kubeconfig", one.Kubeconfig()), kubeconfig.Label)
	create(t, cp, ns, "theirs", withKey("kubeconfig", two.Kubeconfig()), kubeconfig.MulticlusterRuntimeLabel)
	create(t, cp, ns, "flux", withKey("value.yaml", one.Kubeconfig()), "mine")
	create(t, cp, ns, "istio", map[string][]byte{"istio-1": one.Kubeconfig(), "istio-2": two.Kubeconfig()}, "istio/multiCluster")
	createIn(t, cp, ns, clusterAPISecret("capi", "kubeconfig", withKey("value", two.Kubeconfig())))
	createIn(t, cp, ns, clusterAPISecret("capi", "ca", withKey("tls.crt", []byte("x"))))
	createIn(t, cp, ns, argoCDSecret("one", argoCDOf(t, "argo-certificate", one.Config(), "")))
	createIn(t, cp, ns, argoCDSecret("two", argoCDOf(t, "argo-token", two.Config(), tokenOf(t, two))))

	// The member must be the cluster that was meant.
	markers := map[*mctest.ControlPlane]string{one: one.CreateNamespace(t), two: two.CreateNamespace(t)}
	members := map[fleet.ClusterName]*mctest.ControlPlane{
		"ours": one, "theirs": two, "flux": one, "istio-1": one, "istio-2": two, "capi": two, "argo-certificate": one, "argo-token": two,
	}
	for name, want := range members {
		reader := engaged(t, f, name).Cluster().GetAPIReader()
		for plane, marker := range markers {
			err := reader.Get(t.Context(), client.ObjectKey{Name: marker}, &corev1.Namespace{})
			if plane == want && err != nil || plane != want && !apierrors.IsNotFound(err) {
				t.Errorf("%s: the namespace of %s: %v; want %s", name, plane.Name, err, want.Name)
			}
		}
	}
	if got := f.List(nil); len(got) != len(members) {
		t.Errorf("there are %d members, want %d: %v", len(got), len(members), got)
	}
}

// TestProgramsOfAnArgoCDSecretGetTheCredentials plays argocd-k8s-auth by a script, which checks what it is asked.
func TestProgramsOfAnArgoCDSecretGetTheCredentials(t *testing.T) {
	planes := pool.Start(t, mctest.Options{Clusters: 1})
	cp, ns, member := planes.Local, planes.Local.CreateNamespace(t), planes.Members[0]
	folder := t.TempDir()
	credential := filepath.Join(folder, "credential.json")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(credential, `{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
		"status": {"token": "`+tokenOf(t, member)+`"}}`)
	write(filepath.Join(folder, "argocd-k8s-auth"), `#!/bin/sh
		[ "$*" = "aws --cluster-name prod --role-arn some:role" ] && exec cat `+credential)
	write(filepath.Join(folder, "print"), "#!/bin/sh\nexec cat \"$CREDENTIAL\"")
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))

	f := startManager(t, cp, kubeconfig.Provider{
		Namespace: ns, Formats: []kubeconfig.Format{kubeconfig.ArgoCD()}, Allow: kubeconfig.Allow{Exec: []kubeconfig.Program{
			{Command: "print", Env: map[string]string{"CREDENTIAL": folder + "/*.json"}},
			{Command: "argocd-k8s-auth", Args: []string{"aws", "--cluster-name", "*", "--role-arn", "some:*"}},
		}},
	})
	for name, how := range map[string]object{
		"exec": {"execProviderConfig": object{
			"command": "print", "env": object{"CREDENTIAL": credential},
			"apiVersion": "client.authentication.k8s.io/v1beta1",
		}},
		"aws": {"awsAuthConfig": object{"clusterName": "prod", "roleARN": "some:role"}},
	} {
		how["tlsClientConfig"] = object{"caData": member.Config().CAData}
		createIn(t, cp, ns, argoCDSecret(name, map[string][]byte{
			"name": []byte(name), "server": []byte(member.Config().Host), "config": toJSON(t, how),
		}))
		reader := engaged(t, f, fleet.ClusterName(name)).Cluster().GetAPIReader()
		if err := reader.Get(t.Context(), client.ObjectKey{Name: "default"}, &corev1.Namespace{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASecretMayHaveSeveralFormats(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	text := write(t, newKubeconfig())
	formats := []kubeconfig.Format{kubeconfig.Labelled(), kubeconfig.ArgoCD(), kubeconfig.Flux(mine)}
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: formats})

	data := argoCDData(map[string][]byte{"kubeconfig": text, "name": []byte("argo")})
	s := argoCDSecret("ours", data)
	s.Labels[kubeconfig.Label] = "true"
	createIn(t, cp, ns, s)
	const inKubeconfig, inArgoCD = "https://east.example.com:6443", "https://east.example.com"
	known := servers{}
	r.follow(t, known, servers{"ours": inKubeconfig, "argo": inArgoCD})

	// With the same name, the first format counts.
	update(t, cp, s, func(s *corev1.Secret) { s.Data["name"] = []byte("ours") })
	r.follow(t, known, servers{"ours": inKubeconfig})
	waitForEvent(t, cp, s, "DuplicateName", "several members of the same name")

	// One format that describes no member is no trouble while another does.
	update(t, cp, s, func(s *corev1.Secret) { delete(s.Data, "kubeconfig") })
	r.follow(t, known, servers{"ours": inArgoCD})
	update(t, cp, s, func(s *corev1.Secret) { s.Data["server"] = []byte("https://kubernetes.default.svc") })
	r.follow(t, known, servers{})
	waitForEvent(t, cp, s, "NoMember", `no key "kubeconfig"`)
}

func TestOfTwoFormatsTheOlderSecretHasTheName(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})
	known := servers{}
	older := create(t, cp, ns, "older", withKey("prod", write(t, newKubeconfig())), "istio/multiCluster")
	r.follow(t, known, servers{"prod": "https://east.example.com:6443"})
	younger := createIn(t, cp, ns, argoCDSecret("younger", argoCDData(map[string][]byte{"name": []byte("prod")})))
	waitForEvent(t, cp, younger, "DuplicateName", "Secret "+ns+"/older, which is older")

	if err := cp.Client().Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	r.follow(t, known, servers{})
	r.follow(t, known, servers{"prod": "https://east.example.com"})
}

func TestOneBadClusterOfSeveralInASecretHarmsNoOther(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})
	good := write(t, newKubeconfig())
	s := create(t, cp, ns, "secret", map[string][]byte{"a": good, "b": []byte(randomBytes), "c": good}, "istio/multiCluster")
	const east, bad = "https://east.example.com:6443", `key "b": the kubeconfig cannot be used: ` +
		`its content is no YAML or JSON of apiVersion v1, kind Config`
	known := servers{}
	r.follow(t, known, servers{"a": east, "b": bad, "c": east})
	waitForEvent(t, cp, s, kubeconfig.ReasonInvalid, `key "b"`)
	update(t, cp, s, func(s *corev1.Secret) { delete(s.Data, "a") })
	r.follow(t, known, servers{"b": bad, "c": east})
}

func TestNamesOfAllFormatsAreUniqueInAllNamespaces(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	here, there := cp.CreateNamespace(t), cp.CreateNamespace(t)
	text := write(t, newKubeconfig())
	r := start(t, cp, kubeconfig.Provider{AllNamespaces: true, Formats: everyFormat()})
	for _, ns := range []string{here, there} {
		for name, s := range map[string]*corev1.Secret{
			"argo":      argoCDSecret("one", argoCDData(map[string][]byte{"name": []byte("argo")})),
			"nameless":  argoCDSecret("nameless", argoCDData(map[string][]byte{"name": nil})),
			"capi":      clusterAPISecret("capi", "kubeconfig", withKey("value", text)),
			"my.istio_": {ObjectMeta: metav1.ObjectMeta{Name: "istio", Labels: map[string]string{"istio/multiCluster": "true"}}, Data: withKey("my.istio_", text)},
		} {
			createIn(t, cp, ns, s)
			r.next(t, fleet.ClusterName(ns+"/"+name))
		}
	}
}

func TestNameAndContextAreForAllFormats(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{
		AllNamespaces: true,
		Formats:       everyFormat(),
		Name: func(s *corev1.Secret, name string) fleet.ClusterName {
			return fleet.ClusterName(fmt.Sprintf("%s-of-%s", name, s.Name))
		},
		Context: func(*corev1.Secret) string { return "other" },
	})
	create(t, cp, ns, "istio", withKey("east", write(t, newKubeconfig())), "istio/multiCluster")
	if m := r.next(t, "east-of-istio"); m.Config.Host != "https://west.example.com" {
		t.Errorf("the server is %s, want that of the other context", m.Config.Host)
	}
	createIn(t, cp, ns, argoCDSecret("argo", argoCDData(nil)))
	r.next(t, "east-of-argo")
}

func TestANameOfArgoCDThatNoMemberCanHaveIsAnEvent(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})
	for name, text := range map[string]string{strings.Repeat("n", 400): "400 bytes", "my cluster": "or spaces", "east\n": "do not print"} {
		s := createIn(t, cp, ns, argoCDSecret(fmt.Sprint("length-", len(name)), argoCDData(map[string][]byte{"name": []byte(name)})))
		waitForEvent(t, cp, s, "InvalidMember", text)
	}
	long := strings.Repeat("n", 300)
	createIn(t, cp, ns, argoCDSecret("long", argoCDData(map[string][]byte{"name": []byte(long)})))
	r.next(t, fleet.ClusterName(long))
}

func TestAMemberHasTheLabelsOfItsSecretAndOfItsFormat(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})
	s := argoCDSecret("east", argoCDData(map[string][]byte{"project": []byte("shop")}))
	s.Labels["tier"] = "test"
	createIn(t, cp, ns, s)
	want := map[string]string{
		argoCDLabel: "cluster", "tier": "test", kubeconfig.ArgoCDProjectLabel: "shop", objects.NamespaceLabel: ns,
	}
	first := r.next(t, "east")
	if !maps.Equal(first.Labels, want) {
		t.Errorf("labels %v, want %v", first.Labels, want)
	}
	update(t, cp, s, func(s *corev1.Secret) { delete(s.Data, "project") })
	delete(want, kubeconfig.ArgoCDProjectLabel)
	if m := r.next(t, "east"); !maps.Equal(m.Labels, want) || m.Revision != first.Revision {
		t.Errorf("labels %v, want %v; the revision is the same: %t", m.Labels, want, m.Revision == first.Revision)
	}
}

// TestASecretCannotForgeLabelsThatSayWhereAMemberComesFrom: a selector of a project must not match a cluster of another.
func TestASecretCannotForgeLabelsThatSayWhereAMemberComesFrom(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: everyFormat()})
	s := argoCDSecret("east", argoCDData(nil))
	s.Labels[kubeconfig.ArgoCDProjectLabel], s.Labels[objects.NamespaceLabel] = "forged", "forged"
	createIn(t, cp, ns, s)
	if m := r.next(t, "east"); m.Labels[kubeconfig.ArgoCDProjectLabel] != "" || m.Labels[objects.NamespaceLabel] != ns {
		t.Errorf("the member has the labels %v", m.Labels)
	}
}

// TestTheRightsThatTheDocsGiveAMemberTellWhichClusterItIs: and they give no more.
func TestTheRightsThatTheDocsGiveAMemberTellWhichClusterItIs(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	config := cp.AddUser(t, "manager", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"},
	})
	reader, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	system := &corev1.Namespace{}
	if err := cp.Client().Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		t.Fatal(err)
	}
	if got, err := fleet.ReadIdentity(t.Context(), reader); err != nil || got != string(system.UID) {
		t.Errorf("got %q, %v, want %q", got, err, system.UID)
	}
	if err := reader.List(t.Context(), &corev1.NamespaceList{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing namespaces: got %v", err)
	}
}

// TestADialerOfOnesOwnKeepsMembersOffTheHost is about the dialer of the example.
func TestADialerOfOnesOwnKeepsMembersOffTheHost(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	f, _ := fleettest.Run(t, fleet.Options{
		Logger: logr.Discard(), RESTConfig: func(_ fleet.Member, cfg *rest.Config) error {
			cfg.Dial = dial
			return nil
		},
	})
	byName := cp.Config()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(byName.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	byName.Host = "https://" + net.JoinHostPort("localhost", port)
	for name, config := range map[fleet.ClusterName]*rest.Config{"by-address": cp.Config(), "by-name": byName} {
		if err := f.Set(fleet.Member{Name: name, Config: config}); err != nil {
			t.Fatal(err)
		}
		waiting, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		status := fleet.Status{}
		for range f.Changes(waiting) {
			if status, _ = f.Status(name); strings.Contains(status.Message, "no member may be at") {
				break
			}
		}
		if !strings.Contains(status.Message, "no member may be at") {
			t.Errorf("%s is %s: %s", name, status.State, status.Message)
		}
	}
}

func TestAFormatOfOnesOwn(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := cp.CreateNamespace(t)
	tokens := kubeconfig.Format{
		Selectors: []labels.Selector{mine},
		Members: func(s *corev1.Secret, _ kubeconfig.Reading) ([]fleet.Member, error) {
			return []fleet.Member{{Config: &rest.Config{Host: string(s.Data["url"]), BearerToken: string(s.Data["token"])}}}, nil
		},
	}
	r := start(t, cp, kubeconfig.Provider{Namespace: ns, Formats: []kubeconfig.Format{tokens, kubeconfig.ArgoCD()}})
	create(t, cp, ns, "my-own", map[string][]byte{"url": []byte("https://x.example.com"), "token": []byte("t")}, "mine")
	if m := r.next(t, "my-own"); m.Config.Host != "https://x.example.com" || m.Labels["mine"] != "true" {
		t.Errorf("got %s with the labels %v", m.Config.Host, m.Labels)
	}
	createIn(t, cp, ns, argoCDSecret("argo", argoCDData(nil)))
	r.next(t, "east")
}
